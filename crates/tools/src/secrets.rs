//! Resolves secret references: `env:NAME`, `file:PATH`, or one of these in braces within other text.
//!
//! References are resolved for each call, so a rotated secret needs no restart and its value is in no definition and no
//! log. Resolved values are kept for the duration of the call to redact them: programs and servers quote them in errors.

use crate::shortage::{StartBackoff, is_shortage};
use model::error::{ErrorCode, ErrorInfo};
use model::limits::SECRET_CHARS_MIN;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::fs::File;
use tokio::io::AsyncReadExt;

/// Reads a variable of the server's environment.
pub type EnvLookup = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Keys and certificates are smaller than this.
const SECRET_FILE_BYTES_MAX: usize = 64 * 1024;

/// The secrets resolved for one call. It has no `Debug`: it holds their values.
#[derive(Default)]
pub(crate) struct CallSecrets {
    resolved: Vec<ResolvedSecret>,
}

struct ResolvedSecret {
    reference: String,
    value: String,
}

impl ResolvedSecret {
    fn replacement(&self) -> String {
        format!("[{}]", self.reference)
    }
}

impl CallSecrets {
    /// Replaces every reference in the text by its value.
    pub(crate) async fn resolve(&mut self, text: &str, env: &EnvLookup) -> Result<String, ErrorInfo> {
        if is_secret_reference(text) {
            return self.resolve_reference(text, env).await;
        }
        let mut filled = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            filled.push_str(before);
            match after.split_once('}').filter(|(name, _)| is_secret_reference(name)) {
                Some((reference, remainder)) => {
                    filled.push_str(&self.resolve_reference(reference, env).await?);
                    rest = remainder;
                }
                None => {
                    filled.push('{');
                    rest = after;
                }
            }
        }
        filled.push_str(rest);
        Ok(filled)
    }

    /// Replaces every value by its reference, the longest value first, because one may be part of another. Short values
    /// stay: they are parts of words.
    pub(crate) fn redact(&self, text: &str) -> String {
        self.longest_first().fold(text.to_owned(), |text, secret| text.replace(&secret.value, &secret.replacement()))
    }

    /// The same for a text that may be JSON, where a value is written with escapes.
    pub(crate) fn redact_json(&self, text: &str) -> String {
        self.longest_first()
            .fold(text.to_owned(), |text, secret| replace_json(text, &secret.value, &secret.replacement()))
    }

    /// Redacts a text that may go on. Returns it without its end, and the end if that may be the beginning of a secret.
    pub(crate) fn redact_growing_text(&self, text: &str) -> (String, String) {
        let mut redacted = self.redact_json(text);
        let spellings = self.longest_first().flat_map(|secret| json_spellings(&secret.value));
        let held = spellings.map(|spelling| begun_bytes(&redacted, &spelling)).max().unwrap_or_default();
        let end = redacted.split_off(redacted.len() - held);
        (redacted, end)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.resolved.is_empty()
    }

    #[cfg(test)]
    pub(crate) fn with_value(reference: &str, value: &str) -> Self {
        let (reference, value) = (reference.to_owned(), value.to_owned());
        Self { resolved: vec![ResolvedSecret { reference, value }] }
    }

    fn longest_first(&self) -> impl Iterator<Item = &ResolvedSecret> {
        let is_long = |secret: &&ResolvedSecret| secret.value.chars().count() >= SECRET_CHARS_MIN;
        let mut secrets: Vec<&ResolvedSecret> = self.resolved.iter().filter(is_long).collect();
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.value.len()));
        secrets.into_iter()
    }

    async fn resolve_reference(&mut self, reference: &str, env: &EnvLookup) -> Result<String, ErrorInfo> {
        let found = match reference.split_once(':') {
            Some(("env", name)) => env(name).ok_or_else(|| "is not set".to_owned()),
            Some((_, path)) => read_secret_file(path).await,
            None => Err("is not a reference".to_owned()),
        };
        let value =
            found.map_err(|why| ErrorInfo::new(ErrorCode::MissingSecret, format!("the secret `{reference}` {why}")))?;
        self.resolved.push(ResolvedSecret { reference: reference.to_owned(), value: value.clone() });
        Ok(value)
    }
}

/// Replaces a value that may be part of a JSON text.
pub(crate) fn replace_json(text: String, value: &str, replacement: &str) -> String {
    json_spellings(value).iter().fold(text, |text, spelling| text.replace(spelling, replacement))
}

/// The length of the longest end of a text with which a secret begins.
fn begun_bytes(text: &str, secret: &str) -> usize {
    let Some(last) = text.as_bytes().last() else { return 0 };
    let longest = text.len().min(secret.len().saturating_sub(1));
    let may_end = |length: &usize| secret.as_bytes().get(length - 1) == Some(last);
    let is_begun = |length: &usize| secret.get(..*length).is_some_and(|begun| text.ends_with(begun));
    (1..=longest).rev().filter(may_end).find(is_begun).unwrap_or_default()
}

/// A value as it is, and as encoders write it in a JSON string: with what must be escaped, with the slash that some escape,
/// and in ASCII alone.
fn json_spellings(value: &str) -> BTreeSet<String> {
    let quoted = serde_json::Value::from(value).to_string();
    let escaped = quoted.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(value).to_owned();
    let with_slash = escaped.replace('/', "\\/");
    let in_ascii = |text: &str| text.chars().map(ascii_escape).collect::<String>();
    let mut spellings = BTreeSet::from([value.to_owned(), escaped.clone(), with_slash.clone()]);
    if !value.is_ascii() {
        spellings.extend([in_ascii(&escaped), in_ascii(&with_slash)]);
    }
    spellings
}

fn ascii_escape(letter: char) -> String {
    if letter.is_ascii() {
        return letter.to_string();
    }
    let mut units = [0; 2];
    letter.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")).collect()
}

fn is_secret_reference(text: &str) -> bool {
    text.starts_with("env:") || text.starts_with("file:")
}

/// The error quotes nothing of the file.
async fn read_secret_file(path: &str) -> Result<String, String> {
    let unreadable = |error: std::io::Error| format!("cannot be read: {}", error.kind());
    let mut backoff = StartBackoff::default();
    let file = loop {
        match File::open(path).await {
            Err(error) if is_shortage(&error) => backoff.wait("a secret's file").await,
            opened => break opened.map_err(unreadable)?,
        }
    };
    let mut bytes = Vec::new();
    let limit = u64::try_from(SECRET_FILE_BYTES_MAX).unwrap_or(u64::MAX).saturating_add(1);
    file.take(limit).read_to_end(&mut bytes).await.map_err(unreadable)?;
    if bytes.len() > SECRET_FILE_BYTES_MAX {
        return Err(format!("is larger than {SECRET_FILE_BYTES_MAX} bytes"));
    }
    let text = String::from_utf8(bytes).map_err(|_| "is not UTF-8".to_owned())?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env() -> EnvLookup {
        Arc::new(|name| match name {
            "TOKEN" => Some("t0ken-12{env:OTHER}".to_owned()),
            "OTHER" => Some("t0ken-12".to_owned()),
            "SHORT" => Some("t".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        })
    }

    async fn fill(text: &str) -> Result<String, String> {
        CallSecrets::default().resolve(text, &env()).await.map_err(|error| error.message)
    }

    #[tokio::test]
    async fn references_are_replaced_in_text_but_not_in_secret_values() {
        let cases = [
            ("plain", "plain"),
            ("", ""),
            ("env:OTHER", "t0ken-12"),
            ("env:EMPTY", ""),
            ("Bearer {env:OTHER}", "Bearer t0ken-12"),
            ("{env:OTHER}:{env:TOKEN}!", "t0ken-12:t0ken-12{env:OTHER}!"),
            ("{{env:OTHER}}", "{t0ken-12}"),
            ("{env:OTHER", "{env:OTHER"),
            ("{other} env:OTHER", "{other} env:OTHER"),
        ];
        for (text, wanted) in cases {
            assert_eq!(fill(text).await.as_deref(), Ok(wanted), "{text}");
        }
    }

    #[tokio::test]
    async fn a_missing_secret_is_named() {
        assert_eq!(fill("env:NOPE").await, Err("the secret `env:NOPE` is not set".to_owned()));
        assert_eq!(fill("{env:OTHER} {env:}").await, Err("the secret `env:` is not set".to_owned()));
        let error = fill("x {file:no/such/file}").await.unwrap_err();
        assert_eq!(error, "the secret `file:no/such/file` cannot be read: entity not found");
    }

    #[tokio::test]
    async fn a_file_is_read_without_its_last_newline_and_only_up_to_its_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let text = format!("file:{}", path.display());
        for (bytes, wanted) in [(&b"abc\r\n"[..], "abc"), (b" a b ", " a b "), (b"", "")] {
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(fill(&text).await.as_deref(), Ok(wanted));
        }
        std::fs::write(&path, vec![b'k'; SECRET_FILE_BYTES_MAX]).unwrap();
        assert_eq!(fill(&text).await.map(|key| key.len()), Ok(SECRET_FILE_BYTES_MAX));
        std::fs::write(&path, vec![b'k'; SECRET_FILE_BYTES_MAX + 1]).unwrap();
        assert_eq!(fill(&text).await, Err(format!("the secret `{text}` is larger than 65536 bytes")));
        std::fs::write(&path, b"\xff\xfe").unwrap();
        assert_eq!(fill(&text).await, Err(format!("the secret `{text}` is not UTF-8")));
    }

    #[test]
    fn a_secret_is_redacted_however_json_spells_it() {
        let value = "a/b\"c\\é😀-secret".to_owned();
        let secrets = CallSecrets { resolved: vec![ResolvedSecret { reference: "env:KEY".to_owned(), value }] };
        for spelling in [
            "a/b\"c\\é😀-secret",
            r#"a/b\"c\\é😀-secret"#,
            r#"a\/b\"c\\é😀-secret"#,
            r#"a/b\"c\\\u00e9\ud83d\ude00-secret"#,
            r#"a\/b\"c\\\u00e9\ud83d\ude00-secret"#,
        ] {
            assert_eq!(secrets.redact_json(&format!("<{spelling}>")), "<[env:KEY]>", "{spelling}");
        }
    }

    #[tokio::test]
    async fn inserted_secrets_are_redacted_longest_first() {
        let mut secrets = CallSecrets::default();
        for text in ["env:OTHER", "env:TOKEN", "env:EMPTY", "env:SHORT"] {
            secrets.resolve(text, &env()).await.unwrap();
        }
        let redacted = secrets.redact("not a bad t0ken-12{env:OTHER} and t0ken-12.");
        assert_eq!(redacted, "not a bad [env:TOKEN] and [env:OTHER].", "a short one is part of other words");
    }
}
