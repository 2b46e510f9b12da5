"""The certificate that a server shows."""

import ssl

from umbel_server.errors import OptionError
from umbel_server.settings import FrontendSettings


def tls_context(settings: FrontendSettings) -> ssl.SSLContext | None:
    """Load the certificate and its key, None when there is none; raises OptionError.

    TLS 1.2 is the oldest version that is spoken.
    """
    certificate, key = settings.ssl_certfile, settings.ssl_keyfile
    if certificate is None:
        if key is not None:
            raise OptionError("--ssl-keyfile needs --ssl-certfile.")
        return None
    for flag, path in (("--ssl-certfile", certificate), ("--ssl-keyfile", key)):
        if path is not None and not path.is_file():
            raise OptionError(f"{flag} {path}: there is no such file.")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # Without a password of its own, the library would ask for one at the terminal.
        context.load_cert_chain(certificate, key, password="")
    except (ssl.SSLError, OSError) as error:
        reason = getattr(error, "reason", None) or error
        raise OptionError(
            f"--ssl-certfile {certificate}: certificate and key cannot be used ({reason}). Both are "
            "PEM files, the key has no password, and they belong together."
        ) from error
    return context
