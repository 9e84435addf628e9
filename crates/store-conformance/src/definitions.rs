//! The law of [`model::ports::DefinitionStore`].

use super::TestStore;
use model::ports::Journal;

/// Stored once per digest, whatever their length.
pub async fn definitions_are_kept_under_their_digest(_: &dyn Journal, directory: &dyn TestStore) {
    assert_eq!(directory.definitions("abc").await, Ok(None));
    let long = "définition\0\n".repeat(500_000);
    for (digest, body) in [("abc", "{}"), ("def", &long), ("abc", "{}")] {
        assert_eq!(directory.put_definitions(digest, body).await, Ok(()));
    }
    assert_eq!(directory.definitions("abc").await, Ok(Some("{}".to_owned())));
    assert!(directory.definitions("def").await.unwrap().is_some_and(|found| found == long), "another text");
    assert_eq!(directory.definitions("ab").await, Ok(None));
}
