//! Secrets are named in the file, never written: `env:NAME`, `file:PATH`, or either in braces within other text.
//!
//! Here it is only seen whether there is something by that name; what it says is read when it is needed. No value gets
//! into a message.

use super::source::{Source, read_bounded};
use super::table::{Item, shown};

/// The longest secret.
const SECRET_BYTES_MAX: u64 = 64 * 1024;

/// What a name stands for.
enum Reference<'a> {
    Env(&'a str),
    File(&'a str),
}

/// Does the text name a secret?
pub(super) fn refers(text: &str) -> bool {
    pieces(text).iter().any(|piece| matches!(piece, Piece::Secret { .. }))
}

/// The text with the paths that its secrets are at. A secret that is not there is refused.
pub(super) fn checked(item: &Item<'_>, text: &str) -> String {
    let mut out = String::new();
    for piece in pieces(text) {
        match piece {
            Piece::Text(text) => out.push_str(text),
            Piece::Secret { reference, braced } => {
                let named = named(item.source(), &reference);
                if let Err(why) = resolve(item.source(), &reference) {
                    item.refuse(format!("{} cannot be resolved: {why}", shown(&named)));
                }
                out.push_str(&if braced { format!("{{{named}}}") } else { named });
            }
        }
    }
    out
}

/// A setting of the environment that the file names.
pub(crate) fn environment(name: &str) -> Option<String> {
    #[expect(clippy::disallowed_methods, reason = "the file names which variables it wants")]
    let value = std::env::var(name);
    value.ok()
}

fn named(source: &Source, reference: &Reference<'_>) -> String {
    match reference {
        Reference::Env(name) => format!("env:{name}"),
        Reference::File(path) => format!("file:{}", source.path(path).display()),
    }
}

fn resolve(source: &Source, reference: &Reference<'_>) -> Result<(), String> {
    match reference {
        Reference::Env(name) if environment(name).is_some() => Ok(()),
        Reference::Env(_) => Err("the variable is not set; set it before the server starts".to_owned()),
        Reference::File(path) => match read_bounded(&source.path(path), SECRET_BYTES_MAX) {
            Ok(_) => Ok(()),
            Err(error) => Err(format!("{error}; put the file there")),
        },
    }
}

enum Piece<'a> {
    Text(&'a str),
    Secret { reference: Reference<'a>, braced: bool },
}

fn pieces(text: &str) -> Vec<Piece<'_>> {
    if let Some(reference) = reference(text) {
        return vec![Piece::Secret { reference, braced: false }];
    }
    let mut pieces = Vec::new();
    let mut rest = text;
    // Braces that name no secret are text.
    let mut from = 0;
    while let Some(open) = rest.get(from..).and_then(|tail| tail.find('{')).map(|at| from + at) {
        let inner = rest.get(open + 1..).and_then(|tail| tail.split_once('}'));
        match inner.and_then(|(inner, after)| Some((reference(inner)?, after))) {
            Some((reference, after)) => {
                pieces.push(Piece::Text(rest.get(..open).unwrap_or_default()));
                pieces.push(Piece::Secret { reference, braced: true });
                (rest, from) = (after, 0);
            }
            None => from = open + 1,
        }
    }
    pieces.push(Piece::Text(rest));
    pieces
}

fn reference(text: &str) -> Option<Reference<'_>> {
    let env = text.strip_prefix("env:").map(Reference::Env);
    env.or_else(|| text.strip_prefix("file:").map(Reference::File))
}
