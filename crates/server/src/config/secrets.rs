//! References to secrets: `env:NAME`, `file:PATH`, or either in braces within other text.
//!
//! Loading the config only checks that a secret exists and can be redacted; its value is read at each use and never appears in a message.

use super::source::{ConfigSource, read_bounded};
use super::table::{ConfigValue, quote_text};
use model::limits::SECRET_CHARS_MIN;
use providers::http::ResolvedText;
use std::path::Path;

const SECRET_BYTES_MAX: u64 = 64 * 1024;

enum SecretRef<'a> {
    Env(&'a str),
    File(&'a str),
}

pub(super) fn has_secret_ref(text: &str) -> bool {
    split_template(text).iter().any(|part| matches!(part, SecretTemplatePart::Secret { .. }))
}

/// Whether the text is a reference and nothing else.
pub(super) fn is_secret_ref(text: &str) -> bool {
    parse_secret_ref(text).is_some()
}

/// Reports missing secrets, and makes the paths of secrets absolute.
pub(super) fn check_secrets(item: &ConfigValue<'_>, text: &str) -> String {
    let mut out = String::new();
    for part in split_template(text) {
        match part {
            SecretTemplatePart::Text(text) => out.push_str(text),
            SecretTemplatePart::Secret { reference, braced } => {
                let named = absolute_ref(item.source(), &reference);
                // One missing secret is one finding, however many places use it.
                if let Err(why) = check_secret(item.source(), &reference)
                    && item.findings().is_new_cause(&named)
                {
                    item.report_error(format!("{} cannot be resolved: {why}", quote_text(&named)));
                }
                out.push_str(&if braced { format!("{{{named}}}") } else { named });
            }
        }
    }
    out
}

/// Replaces references by values, in a text from [`check_secrets`].
pub(super) async fn resolve_secrets(text: String) -> Result<ResolvedText, String> {
    let is_file = |part: &SecretTemplatePart<'_>| {
        matches!(part, SecretTemplatePart::Secret { reference: SecretRef::File(_), .. })
    };
    if !split_template(&text).iter().any(is_file) {
        return resolve_secrets_blocking(&text);
    }
    // Reading a file may block.
    let filled = tokio::task::spawn_blocking(move || resolve_secrets_blocking(&text)).await;
    filled.unwrap_or_else(|_| Err("the server is stopping".to_owned()))
}

/// The value of a reference that the config has.
pub(crate) async fn resolve_secret(reference: String) -> Result<String, String> {
    resolve_secrets(reference).await.map(|resolved| resolved.text)
}

pub(super) fn resolve_secrets_blocking(text: &str) -> Result<ResolvedText, String> {
    let mut filled = ResolvedText { text: String::new(), secret_values: Vec::new() };
    for part in split_template(text) {
        match part {
            SecretTemplatePart::Text(text) => filled.text.push_str(text),
            SecretTemplatePart::Secret { reference, .. } => {
                let value = read_secret(&reference)?;
                filled.text.push_str(&value);
                filled.secret_values.push(value);
            }
        }
    }
    Ok(filled)
}

fn read_secret(reference: &SecretRef<'_>) -> Result<String, String> {
    let (name, value) = match reference {
        SecretRef::Env(name) => (format!("env:{name}"), read_env(name).ok_or_else(|| "is not set".to_owned())),
        SecretRef::File(path) => {
            let text = read_bounded(Path::new(path), SECRET_BYTES_MAX);
            let text = text.map(|text| text.trim_end_matches(['\r', '\n']).to_owned());
            (format!("file:{path}"), text.map_err(|error| format!("cannot be read: {}", error.kind())))
        }
    };
    let value = value.and_then(|value| if value.is_empty() { Err("is empty".to_owned()) } else { Ok(value) });
    value.map_err(|why| format!("the secret `{name}` {why}"))
}

/// Reads a variable that the file refers to, or that enables a provider.
pub(crate) fn read_env(name: &str) -> Option<String> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the only place: variables that the file names or docs/configuration.md lists"
    )]
    let value = std::env::var(name);
    value.ok()
}

fn absolute_ref(source: &ConfigSource, reference: &SecretRef<'_>) -> String {
    match reference {
        SecretRef::Env(name) => format!("env:{name}"),
        SecretRef::File(path) => format!("file:{}", source.resolve_path(path).display()),
    }
}

fn check_secret(source: &ConfigSource, reference: &SecretRef<'_>) -> Result<(), String> {
    let value = match reference {
        SecretRef::Env(name) => {
            read_env(name).ok_or_else(|| "the variable is not set; set it before the server starts".to_owned())?
        }
        SecretRef::File(path) => {
            let text = read_bounded(&source.resolve_path(path), SECRET_BYTES_MAX).map_err(|error| error.to_string())?;
            text.trim_end_matches(['\r', '\n']).to_owned()
        }
    };
    if is_long_enough(&value) {
        return Ok(());
    }
    Err(format!(
        "it has fewer than {SECRET_CHARS_MIN} characters, so it cannot be redacted in messages; use a longer one"
    ))
}

/// Whether the value can be redacted: a shorter one would also be redacted where it is part of a word.
pub(super) fn is_long_enough(value: &str) -> bool {
    value.chars().count() >= SECRET_CHARS_MIN
}

enum SecretTemplatePart<'a> {
    Text(&'a str),
    Secret { reference: SecretRef<'a>, braced: bool },
}

fn split_template(text: &str) -> Vec<SecretTemplatePart<'_>> {
    if let Some(reference) = parse_secret_ref(text) {
        return vec![SecretTemplatePart::Secret { reference, braced: false }];
    }
    let mut parts = Vec::new();
    let mut rest = text;
    // Other braces are text.
    let mut from = 0;
    while let Some(open) = rest.get(from..).and_then(|tail| tail.find('{')).map(|at| from + at) {
        let inner = rest.get(open + 1..).and_then(|tail| tail.split_once('}'));
        match inner.and_then(|(inner, after)| Some((parse_secret_ref(inner)?, after))) {
            Some((reference, after)) => {
                parts.push(SecretTemplatePart::Text(rest.get(..open).unwrap_or_default()));
                parts.push(SecretTemplatePart::Secret { reference, braced: true });
                (rest, from) = (after, 0);
            }
            None => from = open + 1,
        }
    }
    parts.push(SecretTemplatePart::Text(rest));
    parts
}

fn parse_secret_ref(text: &str) -> Option<SecretRef<'_>> {
    let env = text.strip_prefix("env:").map(SecretRef::Env);
    env.or_else(|| text.strip_prefix("file:").map(SecretRef::File))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_secret_is_read_each_time_and_a_missing_one_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let text = format!("Bearer {{file:{}}}", path.display());
        for (bytes, wanted) in [("one\n", "one"), ("two", "two")] {
            std::fs::write(&path, bytes).unwrap();
            let filled = resolve_secrets(text.clone()).await.ok().unwrap();
            assert_eq!((filled.text, filled.secret_values), (format!("Bearer {wanted}"), vec![wanted.to_owned()]));
        }
        let named = format!("the secret `file:{}`", path.display());
        std::fs::write(&path, "\n").unwrap();
        assert_eq!(resolve_secrets(text.clone()).await.err(), Some(format!("{named} is empty")));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(resolve_secrets(text).await.err(), Some(format!("{named} cannot be read: entity not found")));
        assert_eq!(
            resolve_secrets("env:NO_SUCH_KEY".to_owned()).await.err(),
            Some("the secret `env:NO_SUCH_KEY` is not set".to_owned())
        );
        let plain = resolve_secrets("plain {text}".to_owned()).await.ok().unwrap();
        assert_eq!((plain.text.as_str(), plain.secret_values.len()), ("plain {text}", 0));
    }
    #[test]
    fn a_variable_needs_no_thread_of_its_own() {
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        let (release, released) = std::sync::mpsc::channel::<()>();
        runtime.spawn_blocking(move || released.recv());
        let resolved = runtime.block_on(resolve_secrets("env:PATH".to_owned()));
        assert_eq!(resolved.ok().map(|resolved| resolved.text), read_env("PATH"));
        drop(release);
    }
}
