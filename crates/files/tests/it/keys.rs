//! Which paths are file keys.

use files::{FileKey, FileKeyError};
use model::UserId;
use uuid::Uuid;

fn id() -> Uuid {
    Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0001)
}

#[test]
fn a_key_contains_its_owner_and_parses_back() {
    for user in ["local", "u1", "a-b_C", "u1/../u2", "..", ".", "日本", "a b", "a%2Fb", "auth|1", "A\\B", "a\0b"] {
        let owner = UserId::from(user);
        let key = FileKey::for_attachment(&owner, id(), Some("png")).unwrap();
        assert_eq!(FileKey::parse(key.as_str()).as_ref(), Ok(&key), "{user}");
        assert_eq!(key.owner(), &owner);
        assert_eq!(key.as_str().split('/').count(), 3, "{}", key.as_str());
        assert!(!key.as_str().contains(".."), "{}", key.as_str());
    }
    let key = FileKey::for_attachment(&UserId::from("u1"), id(), None).unwrap();
    assert_eq!(key.as_str(), "agent-inputs/u1/01900000000070008000000000000001");
    let odd = FileKey::for_attachment(&UserId::from("u1"), id(), Some("../x")).unwrap();
    assert_eq!(odd, key, "an extension that is none is left out");
}

#[test]
fn a_blob_key_cannot_come_from_a_client() {
    let (owner, hash) = (UserId::from("u1"), "0123456789abcdef".repeat(4));
    let key = FileKey::for_blob(&owner, &hash, id()).unwrap();
    assert_eq!(key.as_str(), format!("blobs/u1/{hash}-01900000000070008000000000000001"));
    for odd in ["", "../x", &hash.to_uppercase(), &hash[1..]] {
        assert_eq!(FileKey::for_blob(&owner, odd, id()), Err(FileKeyError::Malformed));
    }
    assert_eq!(FileKey::parse_stored(key.as_str()).as_ref(), Ok(&key));
    assert_eq!(FileKey::parse(key.as_str()), Err(FileKeyError::Unknown));
    let sent = FileKey::for_attachment(&UserId::from("u1"), id(), Some("png")).unwrap();
    assert_eq!(FileKey::parse_stored(sent.as_str()), Ok(sent));
    let name = key.as_str().rsplit('/').next().unwrap();
    assert_eq!(FileKey::parse_stored(&format!("blobs/../u1/{name}")), Err(FileKeyError::Malformed));
    for odd in [format!("other/u1/{name}"), format!("agent-inputs/u1/{name}"), format!("blobs/u1/{hash}")] {
        assert_eq!(FileKey::parse_stored(&odd), Err(FileKeyError::Unknown), "{odd}");
    }
}

#[test]
fn an_empty_user_has_no_key() {
    for user in ["", &"u".repeat(201), &"ü".repeat(40)] {
        assert_eq!(FileKey::for_attachment(&UserId::from(user), id(), None), Err(FileKeyError::InvalidOwner), "{user}");
    }
}

#[test]
fn similar_user_ids_have_different_keys() {
    let users = ["u1", "u10", "U1", "u1%2F", "u1/", "u1%2f", "u1.", "u1 ", "%75%31"];
    let mut names: Vec<String> = users
        .iter()
        .map(|user| FileKey::for_attachment(&UserId::from(*user), id(), None).unwrap().as_str().to_owned())
        .collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), users.len());
}

#[test]
fn a_path_that_was_not_generated_is_no_key() {
    let file = "01900000000070008000000000000001";
    let malformed = [
        String::new(),
        "/".to_owned(),
        "..".to_owned(),
        format!("/agent-inputs/u1/{file}"),
        format!("agent-inputs//{file}"),
        format!("agent-inputs/u1/{file}/"),
        format!("agent-inputs/u1/../u2/{file}"),
        format!("agent-inputs/./{file}"),
        format!("agent-inputs/../agent-inputs/u1/{file}"),
        format!("agent-inputs/u1\\{file}"),
        format!("agent-inputs/u1/{file}\0.png"),
        format!("agent-inputs/u1/{file}\r\n"),
        format!("agent-inputs/%2e%2e/{file}"),
        format!("agent-inputs/u1%2f..%2fu2/{file}"),
        format!("agent-inputs%2fu1%2f{file}"),
        format!("agent-inputs/%75%31/{file}"),
        format!("agent-inputs/u1/%2e%2e%2f{file}"),
        format!("agent-inputs/u1/%2e%2e%2fu2%2f{file}"),
        format!("agent-inputs/．．／{file}"),
        format!("agent-inputs/u1/..\u{fffd}{file}"),
        format!("agent-inputs/%FF/{file}"),
        format!("agent-inputs/%/{file}"),
        "/etc/passwd".to_owned(),
        "C:\\x".to_owned(),
        "\\\\srv\\share".to_owned(),
        "file:///etc/passwd".to_owned(),
    ];
    for path in malformed {
        assert_eq!(FileKey::parse(&path), Err(FileKeyError::Malformed), "{path:?}");
    }
    let unknown = [
        "agent-inputs".to_owned(),
        "agent-inputs/u1".to_owned(),
        format!("agent-inputs/u1/more/{file}"),
        format!("other/u1/{file}"),
        "agent-inputs/u1/name.png".to_owned(),
        format!("agent-inputs/u1/{file}."),
        format!("agent-inputs/u1/{file}.PNG"),
        format!("agent-inputs/u1/{file}.tar.gz"),
        format!("agent-inputs/u1/{file}0"),
        format!("agent-inputs/u1/{}", file.replace('1', "G")),
        format!("agent-inputs/{}/{file}", "u".repeat(201)),
    ];
    for path in unknown {
        assert_eq!(FileKey::parse(&path), Err(FileKeyError::Unknown), "{path:?}");
    }
}
