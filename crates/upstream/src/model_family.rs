//! Model families by name, where requests have to differ and nothing else tells them apart.

/// `o1`, `o3-mini`, `gpt-5`, `gpt-5.6-codex`, `codex-mini`; not `gpt-4o`, `gpt-5-chat-latest`, `omni-moderation`.
pub(crate) fn is_reasoning_model(model: &str) -> bool {
    !model.to_ascii_lowercase().contains("-chat") && is_newer_openai_model(model)
}

/// The families that refuse `max_tokens`: reasoning models and their siblings. An `ft:` prefix or a path does not matter.
pub(crate) fn is_newer_openai_model(model: &str) -> bool {
    let name = model.to_ascii_lowercase();
    let name = name.strip_prefix("ft:").unwrap_or(&name);
    let name = name.rsplit('/').next().unwrap_or(name);
    let is_family = |prefix: &str, version_min: u32| {
        let number = name.strip_prefix(prefix).unwrap_or_default();
        let digits = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
        let (number, rest) = number.split_at(digits);
        let is_whole_number = rest.is_empty() || rest.starts_with(['-', '.', ':', '@']);
        is_whole_number && number.parse::<u32>().is_ok_and(|version| version >= version_min)
    };
    is_family("o", 1) || is_family("gpt-", 5) || name.starts_with("codex-")
}
