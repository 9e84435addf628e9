//! URL signatures and their key.

use files::{FileKey, UrlSigner, UrlSignerError};
use model::UserId;
use std::os::unix::fs::PermissionsExt as _;
use uuid::Uuid;

fn key(user: &str, id: u128) -> FileKey {
    FileKey::for_attachment(&UserId::from(user), Uuid::from_u128(id), Some("png")).unwrap()
}

#[test]
fn a_signature_is_valid_for_its_url_only() {
    let dir = tempfile::tempdir().unwrap();
    let seal = UrlSigner::load_or_create(&dir.path().join("key")).unwrap();
    let signature = seal.sign("bucket", &key("u1", 1), 100);
    assert!(seal.verify("bucket", &key("u1", 1), 100, &signature));
    assert!(!seal.verify("buckets", &key("u1", 1), 100, &signature));
    assert!(!seal.verify("bucket", &key("u10", 1), 100, &signature));
    assert!(!seal.verify("bucket", &key("u1", 2), 100, &signature));
    assert!(!seal.verify("bucket", &key("u1", 1), 101, &signature));
    assert!(!seal.verify("bucket", &key("u1", 1), 253_402_300_799, &signature));
    for n in 0..signature.len() {
        let mut altered = signature.clone().into_bytes();
        altered[n] = if altered[n] == b'0' { b'1' } else { b'0' };
        assert!(!seal.verify("bucket", &key("u1", 1), 100, std::str::from_utf8(&altered).unwrap()), "{n}");
    }
    for other in
        ["", "00", &signature[1..], &signature[..62], &signature.to_uppercase(), &format!("{signature}00"), "é"]
    {
        assert!(!seal.verify("bucket", &key("u1", 1), 100, other), "{other}");
    }
}

#[test]
fn the_signing_key_is_created_once_and_readable_by_its_owner_only() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("key");
    let signature = UrlSigner::load_or_create(&path).unwrap().sign("b", &key("u", 1), 1);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(
        UrlSigner::load_or_create(&path).unwrap().verify("b", &key("u", 1), 1, &signature),
        "the same after a restart"
    );
    let elsewhere = UrlSigner::load_or_create(&dir.path().join("other")).unwrap();
    assert!(!elsewhere.verify("b", &key("u", 1), 1, &signature), "and another one elsewhere");
    for bytes in [&b""[..], b"short", &[0; 33]] {
        std::fs::write(&path, bytes).unwrap();
        assert!(matches!(UrlSigner::load_or_create(&path), Err(UrlSignerError::Damaged)));
    }
}
