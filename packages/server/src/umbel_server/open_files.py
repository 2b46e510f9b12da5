"""How many files a server may have open; every connection is one."""

import logging
import resource

logger = logging.getLogger(__name__)

WANTED = 65535


def allow_many_files() -> None:
    """Raise the limit on open files to what is wanted, as far as the system lets us.

    Shells give 1024, which a thousand clients use up (vllm/utils/system_utils.py, set_ulimit).
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = WANTED if hard == resource.RLIM_INFINITY else min(WANTED, hard)
    if soft == resource.RLIM_INFINITY or soft >= most:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    except (ValueError, OSError) as error:
        logger.warning("only %d files may be open at once: %s; see ulimit -n", soft, error)
