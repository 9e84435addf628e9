//! The law of [`model::ports::UserSecrets`].

use super::TestStore;
use super::fixtures::{other_user, test_user};
use model::UserId;
use model::ports::{Journal, NewSecret, SecretKey, SecretKind, StoredSecret};

const NOW: u64 = 1_000;

fn key_of(owner: UserId, kind: SecretKind, name: &str) -> SecretKey {
    SecretKey { owner, kind, name: name.to_owned() }
}

fn token(name: &str) -> SecretKey {
    key_of(test_user(), SecretKind::McpToken, name)
}

fn secret(key: &SecretKey, body: &str) -> NewSecret {
    NewSecret { key: key.clone(), body: body.as_bytes().to_vec(), at: NOW, expires_at: None, count_max: 100 }
}

fn stored(secret: &NewSecret, version: u64) -> StoredSecret {
    let NewSecret { key, body, at, expires_at, .. } = secret.clone();
    StoredSecret { key, version, body, updated_at: at, expires_at }
}

/// 1: values are found by owner, kind and name, and a later write wins.
pub async fn a_secret_belongs_to_its_owner_kind_and_name(_: &dyn Journal, store: &dyn TestStore) {
    assert_eq!(store.secret(&token("files"), NOW).await, Ok(None));
    let first = secret(&token("files"), "\0not text\0");
    let version = store.put_secret(first.clone()).await.unwrap();
    assert_eq!(store.secret(&token("files"), NOW).await, Ok(Some(stored(&first, version))));
    for other in [
        key_of(other_user(), SecretKind::McpToken, "files"),
        key_of(test_user(), SecretKind::McpClient, "files"),
        token("file"),
    ] {
        assert_eq!(store.secret(&other, NOW).await, Ok(None), "{other:?}");
        assert_eq!(store.delete_secret(&other).await, Ok(false), "{other:?}");
    }
    let second = NewSecret { at: NOW + 1, ..secret(&token("files"), "second") };
    let newer = store.put_secret(second.clone()).await.unwrap();
    assert!(newer > version, "{newer} follows {version}");
    let client = secret(&key_of(test_user(), SecretKind::McpClient, "z"), "client");
    let client_version = store.put_secret(client.clone()).await.unwrap();
    store.put_secret(secret(&key_of(other_user(), SecretKind::McpToken, "files"), "theirs")).await.unwrap();
    let listed = vec![stored(&client, client_version), stored(&second, newer)];
    assert_eq!(store.secrets(&test_user(), NOW).await, Ok(listed));
    assert_eq!(store.delete_secret(&token("files")).await, Ok(true));
    assert_eq!(store.delete_secret(&token("files")).await, Ok(false));
    assert_eq!(store.secret(&token("files"), NOW).await, Ok(None));
}

/// 2: a version is never used again, and only the newest can be replaced.
pub async fn a_secret_is_replaced_by_those_who_read_the_newest(_: &dyn Journal, store: &dyn TestStore) {
    let key = token("files");
    let first = store.put_secret(secret(&key, "first")).await.unwrap();
    assert_eq!(store.replace_secret(first, secret(&key, "second")).await, Ok(true));
    assert_eq!(store.replace_secret(first, secret(&key, "late")).await, Ok(false));
    let found = store.secret(&key, NOW).await.unwrap().unwrap();
    assert_eq!(found.body, b"second");
    store.delete_secret(&key).await.unwrap();
    assert_eq!(store.replace_secret(found.version, secret(&key, "late")).await, Ok(false));
    let again = store.put_secret(secret(&key, "again")).await.unwrap();
    assert!(again > found.version, "{again} is newer than {}", found.version);
    assert_eq!(store.replace_secret(found.version, secret(&key, "late")).await, Ok(false));
    assert_eq!(store.secret(&key, NOW).await.unwrap().unwrap().body, b"again");
}

/// 3: one caller at a time holds a claim, until its time is over or the value changes.
pub async fn a_claim_is_granted_to_one_caller(_: &dyn Journal, store: &dyn TestStore) {
    let key = token("files");
    assert_eq!(store.claim_secret(&key, 1, NOW, NOW + 10).await, Ok(false));
    let version = store.put_secret(secret(&key, "first")).await.unwrap();
    let claims = (0..20).map(|_| store.claim_secret(&key, version, NOW, NOW + 10));
    let granted = futures_util::future::join_all(claims).await;
    assert_eq!(granted.into_iter().filter(|granted| *granted == Ok(true)).count(), 1);
    assert_eq!(store.claim_secret(&key, version, NOW + 9, NOW + 20).await, Ok(false));
    assert_eq!(store.claim_secret(&key, version, NOW + 10, NOW + 20).await, Ok(true), "its time was over");
    assert_eq!(store.replace_secret(version, secret(&key, "second")).await, Ok(true));
    assert_eq!(store.claim_secret(&key, version, NOW + 30, NOW + 40).await, Ok(false), "not the newest version");
    let newest = store.secret(&key, NOW).await.unwrap().unwrap().version;
    assert_eq!(store.claim_secret(&key, newest, NOW + 11, NOW + 20).await, Ok(true), "a new value is not claimed");
    let theirs = key_of(other_user(), SecretKind::McpToken, "files");
    assert_eq!(store.claim_secret(&theirs, newest, NOW + 30, NOW + 40).await, Ok(false));
}

/// 4: of several callers one takes a value.
pub async fn a_secret_is_taken_once(_: &dyn Journal, store: &dyn TestStore) {
    let new = secret(&key_of(test_user(), SecretKind::McpAuthorization, "digest"), "state");
    let version = store.put_secret(new.clone()).await.unwrap();
    assert_eq!(store.take_secret(SecretKind::McpToken, "digest", NOW).await, Ok(None));
    let takes = (0..20).map(|_| store.take_secret(SecretKind::McpAuthorization, "digest", NOW));
    let taken: Vec<_> = futures_util::future::join_all(takes).await.into_iter().filter_map(Result::unwrap).collect();
    assert_eq!(taken, [stored(&new, version)]);
    assert_eq!(store.secret(&new.key, NOW).await, Ok(None));
}

/// 5: an expired value does not exist.
pub async fn an_expired_secret_does_not_exist(_: &dyn Journal, store: &dyn TestStore) {
    let key = token("files");
    let short = NewSecret { expires_at: Some(NOW + 10), ..secret(&key, "short") };
    let version = store.put_secret(short.clone()).await.unwrap();
    assert_eq!(store.secret(&key, NOW + 9).await, Ok(Some(stored(&short, version))));
    assert_eq!(store.secret(&key, NOW + 10).await, Ok(None));
    assert_eq!(store.secrets(&test_user(), NOW + 10).await, Ok(Vec::new()));
    assert_eq!(store.claim_secret(&key, version, NOW + 10, NOW + 20).await, Ok(false));
    let late = NewSecret { at: NOW + 10, ..secret(&key, "late") };
    assert_eq!(store.replace_secret(version, late.clone()).await, Ok(false));
    assert_eq!(store.take_secret(SecretKind::McpToken, "files", NOW + 10).await, Ok(None));
    store.put_secret(short.clone()).await.unwrap();
    let newer = store.put_secret(late.clone()).await.unwrap();
    assert_eq!(store.secret(&key, NOW + 10).await, Ok(Some(stored(&late, newer))));
}

/// 6: the oldest values of an owner and a kind make room.
pub async fn the_oldest_secrets_make_room(_: &dyn Journal, store: &dyn TestStore) {
    let state = |owner: UserId, name: &str| {
        let key = key_of(owner, SecretKind::McpAuthorization, name);
        NewSecret { count_max: 2, ..secret(&key, name) }
    };
    store.put_secret(secret(&token("files"), "stays")).await.unwrap();
    store.put_secret(state(other_user(), "theirs")).await.unwrap();
    for name in ["a", "b", "c", "b"] {
        store.put_secret(state(test_user(), name)).await.unwrap();
    }
    store.put_secret(state(test_user(), "d")).await.unwrap();
    let names = |secrets: Vec<StoredSecret>| secrets.into_iter().map(|secret| secret.key.name).collect::<Vec<_>>();
    assert_eq!(names(store.secrets(&test_user(), NOW).await.unwrap()), ["b", "d", "files"]);
    assert_eq!(names(store.secrets(&other_user(), NOW).await.unwrap()), ["theirs"]);
}

/// All values of an owner can be deleted at once.
pub async fn the_secrets_of_an_owner_are_deleted_together(_: &dyn Journal, store: &dyn TestStore) {
    for kind in SecretKind::ALL {
        store.put_secret(secret(&key_of(test_user(), kind, "a"), "mine")).await.unwrap();
        store.put_secret(secret(&key_of(other_user(), kind, "a"), "theirs")).await.unwrap();
    }
    assert_eq!(store.delete_secrets(&test_user()).await, Ok(3));
    assert_eq!(store.delete_secrets(&test_user()).await, Ok(0));
    assert_eq!(store.secrets(&test_user(), NOW).await, Ok(Vec::new()));
    assert_eq!(store.secrets(&other_user(), NOW).await.unwrap().len(), 3);
}
