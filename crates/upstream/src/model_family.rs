//! What a model's name says about it, where a request has to differ and nothing else tells.

/// `o1`, `o3-mini`, `gpt-5`, `gpt-5.6-codex`, `codex-mini`; not `gpt-4o`, `gpt-5-chat-latest`, `omni-moderation`.
pub(crate) fn is_reasoning_model(model: &str) -> bool {
    !model.to_ascii_lowercase().contains("-chat") && is_newer_openai_model(model)
}

/// The families that refuse `max_tokens`: those that reason, and what is sold beside them. Behind a `ft:` or a path the
/// name is the same.
pub(crate) fn is_newer_openai_model(model: &str) -> bool {
    let name = model.to_ascii_lowercase();
    let name = name.strip_prefix("ft:").unwrap_or(&name);
    let name = name.rsplit('/').next().unwrap_or(name);
    let family = |prefix: &str, least: u32| {
        let number = name.strip_prefix(prefix).unwrap_or_default();
        let digits = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
        let (number, rest) = number.split_at(digits);
        let ends = rest.is_empty() || rest.starts_with(['-', '.', ':', '@']);
        ends && number.parse::<u32>().is_ok_and(|number| number >= least)
    };
    family("o", 1) || family("gpt-", 5) || name.starts_with("codex-")
}
