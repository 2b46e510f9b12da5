from hypothesis import settings

# For a long run by hand, with examples that are new each time:
#   pytest tests/engine_real/test_decoder_fuzz.py --hypothesis-profile thorough \
#       -o faulthandler_timeout=0
settings.register_profile("thorough", max_examples=20_000, derandomize=False)
