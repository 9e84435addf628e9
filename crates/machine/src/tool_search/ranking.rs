//! Which tools a query means: BM25 over their names, descriptions and parameters.
//!
//! The same query over the same tools finds the same tools in the same order.

use model::definition::Tool;
use serde_json::Value;
use std::collections::BTreeMap;

/// The usual parameters of BM25: how fast repeated words count less, and how much long texts are discounted.
const TERM_SATURATION: f64 = 1.2;
const LENGTH_DISCOUNT: f64 = 0.75;
/// How much a word counts in each field of a tool.
const NAME_WEIGHT: f64 = 3.0;
const TITLE_WEIGHT: f64 = 2.0;
const DESCRIPTION_WEIGHT: f64 = 1.0;
/// How much a word counts that only begins like a word of the query.
const PREFIX_WEIGHT: f64 = 0.5;
/// Shorter words have to match as a whole.
const PREFIX_CHARS_MIN: usize = 3;
/// Of a query and of a description: what is longer is not read to its end.
const QUERY_CHARS_MAX: usize = 1_000;
const FIELD_CHARS_MAX: usize = 4_000;

/// The best matches. Tools that the query names come first, in the order of the query.
pub(super) fn rank_tools<'a>(tools: &[&'a Tool], query: &str, limit: usize) -> Vec<&'a Tool> {
    let query: String = query.chars().take(QUERY_CHARS_MAX).collect();
    let mut found: Vec<&Tool> = Vec::new();
    for name in query.split(|letter: char| letter.is_whitespace() || matches!(letter, ',' | ';' | '`' | '"')) {
        let named = tools.iter().find(|tool| tool.spec.name == name);
        found.extend(named.filter(|named| !contains(&found, named)).copied());
    }
    let mut terms = words(&query);
    terms.sort();
    terms.dedup();
    let documents: Vec<Document> = tools.iter().map(|tool| Document::new(tool)).collect();
    let mut ranked: Vec<(f64, &Tool)> =
        score_documents(&documents, &terms).into_iter().zip(tools.iter().copied()).collect();
    ranked.retain(|(score, tool)| *score > 0.0 && !contains(&found, tool));
    // A stable sort: equal scores keep the order of the tools.
    ranked.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    found.extend(ranked.into_iter().map(|(_, tool)| tool));
    found.truncate(limit);
    found
}

fn contains(tools: &[&Tool], tool: &Tool) -> bool {
    tools.iter().any(|known| known.spec.name == tool.spec.name)
}

/// The words of a tool, each with its weighted number.
struct Document {
    words: BTreeMap<String, f64>,
    length: f64,
}

impl Document {
    fn new(tool: &Tool) -> Self {
        let mut document = Self { words: BTreeMap::new(), length: 0.0 };
        document.add(&tool.spec.name, NAME_WEIGHT);
        document.add(tool.display_name.as_deref().unwrap_or_default(), TITLE_WEIGHT);
        document.add(tool.namespace().unwrap_or_default(), TITLE_WEIGHT);
        document.add(&tool.spec.description, DESCRIPTION_WEIGHT);
        let properties = tool.spec.parameters.get("properties").and_then(Value::as_object);
        for (name, schema) in properties.into_iter().flatten() {
            document.add(name, DESCRIPTION_WEIGHT);
            document
                .add(schema.get("description").and_then(Value::as_str).unwrap_or_default(), DESCRIPTION_WEIGHT / 2.0);
        }
        document
    }

    fn add(&mut self, text: &str, weight: f64) {
        let text: String = text.chars().take(FIELD_CHARS_MAX).collect();
        for word in words(&text) {
            *self.words.entry(word).or_default() += weight;
            self.length += weight;
        }
    }

    /// The weighted number of words that match a term.
    fn count(&self, term: &str) -> f64 {
        let whole = self.words.get(term).copied().unwrap_or_default();
        if whole > 0.0 || term.chars().count() < PREFIX_CHARS_MIN {
            return whole;
        }
        let is_related =
            |word: &str| word.starts_with(term) || (word.chars().count() >= PREFIX_CHARS_MIN && term.starts_with(word));
        let related = self.words.iter().filter(|(word, _)| is_related(word)).map(|(_, count)| *count);
        related.fold(0.0, f64::max) * PREFIX_WEIGHT
    }
}

#[expect(clippy::cast_precision_loss, reason = "there are far fewer than 2^52 tools")]
fn score_documents(documents: &[Document], terms: &[String]) -> Vec<f64> {
    let total = documents.len() as f64;
    let average = documents.iter().map(|document| document.length).sum::<f64>() / total.max(1.0);
    let mut scores = vec![0.0; documents.len()];
    for term in terms {
        let counts: Vec<f64> = documents.iter().map(|document| document.count(term)).collect();
        let matching = counts.iter().filter(|count| **count > 0.0).count() as f64;
        let rarity = ((total - matching + 0.5) / (matching + 0.5)).ln_1p();
        for ((score, count), document) in scores.iter_mut().zip(counts).zip(documents) {
            let relative_length = document.length / average.max(f64::MIN_POSITIVE);
            let norm = TERM_SATURATION * LENGTH_DISCOUNT.mul_add(relative_length - 1.0, 1.0);
            *score += rarity * count * (TERM_SATURATION + 1.0) / (count + norm);
        }
    }
    scores
}

/// The words of a text in lower case and without plural endings: `readFile`, `read_files` and `Read file` are the same two.
/// Scripts without spaces have one word per letter.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut word = String::new();
    let mut was_lower = false;
    for letter in text.chars() {
        let begins_word = letter.is_uppercase() && was_lower;
        if !letter.is_alphanumeric() || begins_word || is_ideograph(letter) {
            words.extend(finish_word(&mut word));
        }
        if is_ideograph(letter) {
            words.push(letter.to_string());
        } else if letter.is_alphanumeric() {
            word.extend(letter.to_lowercase());
        }
        was_lower = letter.is_lowercase();
    }
    words.extend(finish_word(&mut word));
    words
}

const fn is_ideograph(letter: char) -> bool {
    matches!(letter, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}')
}

fn finish_word(word: &mut String) -> Option<String> {
    let word = std::mem::take(word);
    let is_plural = word.len() > 3 && word.ends_with('s') && !word.ends_with("ss");
    let stem = match word.strip_suffix("ies") {
        Some(stem) if stem.len() > 1 => format!("{stem}y"),
        _ if is_plural => word.strip_suffix('s').unwrap_or(&word).to_owned(),
        _ => word,
    };
    (!stem.is_empty()).then_some(stem)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::definition::{ToolExecutor, ToolSpec};
    use serde_json::json;

    fn tool(name: &str, description: &str, parameters: Value) -> Tool {
        let (name, description) = (name.to_owned(), description.to_owned());
        Tool::new(ToolSpec { name, description, parameters }, ToolExecutor::Builtin)
    }

    fn tools() -> Vec<Tool> {
        let word = |name: &str| json!({"type": "object", "properties": {name: {"type": "string"}}});
        vec![
            tool("files__read_file", "Reads the contents of a file.", word("path")),
            tool("files__write_file", "Writes a file.", word("path")),
            tool("crm__listCustomers", "Lists customers of a region.", word("region")),
            tool("crm__get_invoice", "Returns one invoice by its number.", word("invoice_number")),
            tool("weather__forecast", "Tomorrow's temperature and rain.", word("city")),
            tool("karte__suche", "在地图上查找地点", word("ort")),
        ]
    }

    fn search(query: &str) -> Vec<String> {
        let tools = tools();
        let all: Vec<&Tool> = tools.iter().collect();
        rank_tools(&all, query, 3).iter().map(|tool| tool.spec.name.clone()).collect()
    }

    #[test]
    fn a_tool_is_found_by_its_name_its_description_and_its_parameters() {
        assert_eq!(search("read a file")[0], "files__read_file");
        assert_eq!(search("customer")[0], "crm__listCustomers");
        assert_eq!(search("region"), ["crm__listCustomers"]);
        assert_eq!(search("invoices by number")[0], "crm__get_invoice");
        assert_eq!(search("temp in a city")[0], "weather__forecast");
        assert_eq!(search("地图"), ["karte__suche"]);
    }

    #[test]
    fn a_name_in_the_query_comes_first() {
        let found = search("weather__forecast, `files__write_file` to read files");
        assert_eq!(found, ["weather__forecast", "files__write_file", "files__read_file"]);
    }

    #[test]
    fn what_no_tool_has_is_not_found() {
        assert_eq!(search("zeppelin"), [""; 0]);
        assert_eq!(search(""), [""; 0]);
        assert_eq!(search("!?"), [""; 0]);
        assert_eq!(rank_tools(&[], "file", 3).len(), 0);
    }

    #[test]
    fn equal_tools_keep_their_order() {
        let same: Vec<Tool> = ["b", "a", "c"].map(|name| tool(name, "the same", json!({}))).into();
        let all: Vec<&Tool> = same.iter().collect();
        let found = rank_tools(&all, "same", 8);
        assert_eq!(found.iter().map(|tool| tool.spec.name.as_str()).collect::<Vec<_>>(), ["b", "a", "c"]);
    }

    #[test]
    fn words_are_split_at_case_and_lose_their_plural() {
        assert_eq!(
            words("readFiles HTTPServer get_2_entries class as"),
            ["read", "file", "httpserver", "get", "2", "entry", "class", "as"]
        );
    }
}
