//! Tool names in a request. A model may call a tool by a name that its own provider does not accept back.

/// The longest name that every provider accepts.
pub(crate) const TOOL_NAME_CHARS_MAX: usize = 64;

/// Only ASCII letters, digits, `_` and `-`, and not too long.
pub(crate) fn is_valid_tool_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= TOOL_NAME_CHARS_MAX && name.chars().all(is_valid_char)
}

/// Replaces every other character by `_` and truncates the name; an empty one becomes `fallback`.
pub(crate) fn sanitize_tool_name(name: &str, fallback: &str) -> String {
    let replace = |c: char| if is_valid_char(c) { c } else { '_' };
    let name: String = name.chars().take(TOOL_NAME_CHARS_MAX).map(replace).collect();
    if name.is_empty() { fallback.to_owned() } else { name }
}

const fn is_valid_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_names_are_valid_for_the_provider() {
        assert_eq!(sanitize_tool_name("get_weather-2", "_"), "get_weather-2");
        assert_eq!(sanitize_tool_name("functions.get wéather", "_"), "functions_get_w_ather");
        assert_eq!(sanitize_tool_name("", "_"), "_");
        assert_eq!(sanitize_tool_name(&"x".repeat(200), "_").len(), TOOL_NAME_CHARS_MAX);
    }
}
