def test_the_programs_of_the_readme_print_what_it_says(programs_of, run_program):
    for source, output in programs_of("packages/llm/README.md"):
        assert run_program(source) == output
