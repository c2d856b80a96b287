"""An authority and a certificate for 127.0.0.1, made anew for each test session: nothing that expires lies in the repository."""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from tests.tls.certificates import AUTHORITY_USE

_DAY = dt.timedelta(days=1)


@dataclass(frozen=True)
class Certificates:
    """Paths of PEM files: the authority that signed, and a server's certificate with its key."""

    authority: Path
    certificate: Path
    key: Path

    def trusting(self) -> ssl.SSLContext:
        """A client's context that trusts this authority alone and checks the server's name."""
        return ssl.create_default_context(cafile=str(self.authority))


def make_certificates(folder: Path, host: str = "127.0.0.1") -> Certificates:
    """New ones, in `folder`, the server's for this address."""
    folder.mkdir(parents=True)
    made = Certificates(folder / "authority.pem", folder / "server.pem", folder / "server-key.pem")
    authority_key, server_key = _key(), _key()
    authority = _name("PinLater's tests")
    made.authority.write_bytes(_pem(_signed(authority, authority_key, authority, authority_key, is_authority=True)))
    made.certificate.write_bytes(_pem(_signed(_name(host), server_key, authority, authority_key, host)))
    made.key.write_bytes(
        server_key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    made.key.chmod(0o600)
    return made


def _key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _signed(
    subject: x509.Name,
    key: rsa.RSAPrivateKey,
    issuer: x509.Name,
    issuer_key: rsa.RSAPrivateKey,
    host: str = "127.0.0.1",
    *,
    is_authority: bool = False,
) -> x509.Certificate:
    now = dt.datetime.now(dt.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + 2 * _DAY)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )
    if is_authority:
        builder = builder.add_extension(AUTHORITY_USE, critical=True)
    else:
        names = [x509.IPAddress(ipaddress.ip_address(host)), x509.DNSName("localhost")]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())
