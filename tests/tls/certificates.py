"""Authorities and certificates with short keys, made in a few milliseconds each: nothing that expires lies in the repository."""

from __future__ import annotations

import datetime as dt
import ipaddress
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = dt.timedelta(days=1)
AUTHORITY_USE = x509.KeyUsage(
    key_cert_sign=True,
    crl_sign=True,
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)
SERVER, CLIENT = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH


class KeyPair(NamedTuple):
    """Paths of PEM files."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates. `file`: its own. Unless `well_formed`, that has no key usage, as many internal authorities have none."""

    def __init__(self, folder: Path, name: str = "authority", *, well_formed: bool = True) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._name = name
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._made = 0
        self.file = folder / f"{name}.pem"
        basic = x509.BasicConstraints(ca=True, path_length=None)
        own = self._builder(name, self._key.public_key(), 2 * DAY).add_extension(basic, critical=True)
        if well_formed:
            own = own.add_extension(AUTHORITY_USE, critical=True)
        self.file.write_bytes(own.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def sign(
        self,
        *names: str,
        lasts: dt.timedelta = 30 * DAY,
        begins: dt.timedelta = -10 * DAY,
        uses: tuple[x509.ObjectIdentifier, ...] = (SERVER, CLIENT),
        into: KeyPair | None = None,
    ) -> KeyPair:
        """A certificate for these names and addresses; without `into` in new files. `begins` and `lasts`: from now, or before."""
        self._made += 1
        stem = self._folder / f"{self._name}-{self._made}"
        files = into or KeyPair(stem.with_suffix(".pem"), stem.with_suffix(".key"))
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(names[0] if names else "nameless", key.public_key(), lasts, begins)
        if names:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_name(name) for name in names]), critical=False
            )
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        made = builder.sign(self._key, hashes.SHA256())
        files.key.touch(0o600)
        files.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        files.certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
        return files

    def locked(self, pair: KeyPair) -> KeyPair:
        """The same with a passphrase on the key."""
        key = serialization.load_pem_private_key(pair.key.read_bytes(), None)
        locked = pair.key.with_suffix(".locked")
        secret = serialization.BestAvailableEncryption(b"passphrase")
        locked.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, secret))
        return pair._replace(key=locked)

    def _builder(
        self, subject: str, key: ec.EllipticCurvePublicKey, lasts: dt.timedelta, begins: dt.timedelta = -10 * DAY
    ) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(_common_name(subject))
            .issuer_name(_common_name(self._name))
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + begins)
            .not_valid_after(now + lasts)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
