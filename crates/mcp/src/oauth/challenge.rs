//! `WWW-Authenticate`: why a server refused a request, and what it wants instead.

/// Values of the header that are read, and their length.
const CHALLENGES_MAX: usize = 8;
const CHALLENGE_BYTES_MAX: usize = 8 * 1024;
const PARAMETERS_MAX: usize = 64;

/// What a challenge for a bearer token says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct BearerChallenge {
    /// Where the server describes itself (RFC 9728).
    pub(super) resource_metadata: Option<String>,
    pub(super) scope: Option<String>,
    pub(super) error: Option<String>,
}

impl BearerChallenge {
    /// The first challenge for a bearer token among the values of the header.
    pub(super) fn find(values: &[String]) -> Self {
        let values = values.iter().take(CHALLENGES_MAX).filter(|value| value.len() <= CHALLENGE_BYTES_MAX);
        values.filter_map(|value| parse_bearer(value)).next().unwrap_or_default()
    }
}

/// A header may have several challenges: `Basic realm="a", Bearer error="b", scope="c"`. A word without `=` begins one.
fn parse_bearer(value: &str) -> Option<BearerChallenge> {
    let mut found: Option<BearerChallenge> = None;
    let mut rest = value;
    for _ in 0..PARAMETERS_MAX {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        let end = rest.find([' ', '\t', ',', '=']).unwrap_or(rest.len());
        let (word, after) = rest.split_at_checked(end)?;
        if word.is_empty() {
            break;
        }
        let Some(after) = after.trim_start().strip_prefix('=') else {
            if found.is_some() {
                break;
            }
            found = word.eq_ignore_ascii_case("bearer").then(BearerChallenge::default);
            rest = after;
            continue;
        };
        let (text, after) = parse_value(after.trim_start())?;
        rest = after;
        let Some(challenge) = &mut found else { continue };
        match word.to_ascii_lowercase().as_str() {
            "resource_metadata" => challenge.resource_metadata = Some(text),
            "scope" => challenge.scope = Some(text),
            "error" => challenge.error = Some(text),
            _ => {}
        }
    }
    found
}

/// A token or a quoted string, and what follows it.
fn parse_value(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([' ', '\t', ',']).unwrap_or(text.len());
        let (value, after) = text.split_at_checked(end)?;
        return Some((value.to_owned(), after));
    };
    let mut value = String::new();
    let mut letters = quoted.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((value, quoted.get(at + 1..)?)),
            '\\' => value.push(letters.next()?.1),
            letter => value.push(letter),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(values: &[&str]) -> BearerChallenge {
        BearerChallenge::find(&values.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>())
    }

    fn challenge(metadata: Option<&str>, scope: Option<&str>, error: Option<&str>) -> BearerChallenge {
        let text = |text: Option<&str>| text.map(str::to_owned);
        BearerChallenge { resource_metadata: text(metadata), scope: text(scope), error: text(error) }
    }

    #[test]
    fn a_bearer_challenge_is_found_among_others() {
        let url = "https://mcp.example/.well-known/oauth-protected-resource";
        for (values, wanted) in [
            (vec![], challenge(None, None, None)),
            (vec!["Basic realm=\"x\""], challenge(None, None, None)),
            (vec!["Bearer"], challenge(None, None, None)),
            (vec!["bearer scope=\"a b\""], challenge(None, Some("a b"), None)),
            (vec!["Bearer error=invalid_token,scope=a"], challenge(None, Some("a"), Some("invalid_token"))),
            (
                vec![
                    "Basic realm=\"a, Bearer scope=\\\"no\\\"\", Bearer realm=\"r\", resource_metadata = \"https://x/\"",
                ],
                challenge(Some("https://x/"), None, None),
            ),
            (vec!["Bearer scope=\"a\", Digest scope=\"b\""], challenge(None, Some("a"), None)),
            (vec!["Negotiate", "Bearer scope=b"], challenge(None, Some("b"), None)),
            (vec!["Bearer scope=\"never ends"], challenge(None, None, None)),
            (vec!["=====", ",,,,", "\"\"", "Bearer ="], challenge(None, None, None)),
        ] {
            assert_eq!(find(&values), wanted, "{values:?}");
        }
        let whole = format!("Bearer resource_metadata=\"{url}\", error=\"insufficient_scope\", scope=\"files:read\"");
        let wanted = challenge(Some(url), Some("files:read"), Some("insufficient_scope"));
        assert_eq!(find(&[&whole]), wanted);
    }

    #[test]
    fn a_long_challenge_is_not_read() {
        let long = format!("Bearer scope=\"{}\"", "a".repeat(CHALLENGE_BYTES_MAX));
        assert_eq!(find(&[&long]), BearerChallenge::default());
        let many = format!("Bearer {}", "a=b,".repeat(1000));
        assert_eq!(find(&[&many]), BearerChallenge::default());
    }
}
