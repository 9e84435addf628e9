//! Converts HTML to text: the title, then the content in reading order, with Markdown for visible structure.
//!
//! There is no tree: tags are processed as they come, so that deep nesting costs nothing, and processing stops at the
//! limit.

use crate::plain_text::{self, ExtractedText};
use encoding_rs::Encoding;
use html5gum::{DefaultEmitter, StartTag, State, Token, Tokenizer};
use std::borrow::Cow;
use url::Url;

/// A charset declaration must stand within this.
const META_BYTES: usize = 1024;
/// Longer link targets are dropped.
const LINK_BYTES_MAX: usize = 500;
/// Deeper lists are not indented further.
const LIST_DEPTH_MAX: usize = 8;

/// Elements without visible text.
const HIDDEN_ELEMENTS: [&[u8]; 14] = [
    b"script",
    b"style",
    b"noscript",
    b"template",
    b"svg",
    b"math",
    b"iframe",
    b"object",
    b"canvas",
    b"audio",
    b"video",
    b"noembed",
    b"noframes",
    b"datalist",
];

/// Decodes a page, whose charset may be declared in the page itself.
pub(super) fn decode_html<'a>(bytes: &'a [u8], declared: Option<&str>) -> Cow<'a, str> {
    let declared = declared.filter(|label| Encoding::for_label(label.as_bytes()).is_some());
    let own = if declared.is_none() { own_charset(bytes) } else { None };
    plain_text::decode_text(bytes, declared.or(own.as_deref()))
}

/// The charset that the page declares. A declaration that is readable as ASCII cannot be UTF-16, whatever it says.
fn own_charset(bytes: &[u8]) -> Option<String> {
    let head = String::from_utf8_lossy(bytes.get(..META_BYTES).unwrap_or(bytes)).to_ascii_lowercase();
    let mut tags = Tokenizer::new(head.as_str()).filter_map(|token| match token {
        Ok(Token::StartTag(tag)) if *tag.name == b"meta"[..] => meta_charset(&tag),
        _ => None,
    });
    tags.next().or_else(|| xml_charset(&head)).filter(|label| !label.starts_with("utf-16"))
}

/// From `<meta charset=…>` or `<meta http-equiv=content-type content='…; charset=…'>`.
fn meta_charset(tag: &StartTag<()>) -> Option<String> {
    let attribute =
        |name: &[u8]| tag.attributes.get(name).map(|value| String::from_utf8_lossy(value).trim().to_owned());
    attribute(b"charset").or_else(|| {
        attribute(b"http-equiv").filter(|directive| directive == "content-type")?;
        attribute_value(&attribute(b"content")?, "charset")
    })
}

/// From `<?xml … encoding='…'?>`.
fn xml_charset(head: &str) -> Option<String> {
    attribute_value(head.trim_start().strip_prefix("<?xml")?.split_once("?>")?.0, "encoding")
}

/// The value after `name=`, with or without quotes.
fn attribute_value(text: &str, name: &str) -> Option<String> {
    let value = text.split_once(name)?.1.trim_start().strip_prefix('=')?.trim_start();
    let value = value.trim_start_matches(['"', '\'']);
    value.split(['"', '\'', ';', ' ']).next().map(str::to_owned)
}

/// `base` is the page's URL.
pub(super) fn html_to_text(html: &str, base: Option<&Url>, bytes_max: usize) -> ExtractedText {
    let mut emitter = DefaultEmitter::default();
    emitter.naively_switch_states(true);
    let mut page = HtmlTextWriter::new(base);
    page.is_xml = html.trim_start().starts_with("<?xml");
    let mut tokens = Tokenizer::new_with_emitter(html, emitter);
    while let Some(Ok(token)) = tokens.next() {
        match token {
            Token::StartTag(tag) => {
                let hides = page.hidden.is_some();
                page.open(&tag);
                // In HTML `<script/>` opens an element; in XML it is complete.
                if tag.self_closing && page.is_xml {
                    tokens.set_state(State::Data);
                    if !hides {
                        page.close(&tag.name);
                    }
                }
            }
            Token::EndTag(tag) => page.close(&tag.name),
            Token::String(words) => page.write_text(&String::from_utf8_lossy(&words)),
            Token::Comment(_) | Token::Doctype(_) | Token::Error(_) => {}
        }
        // Pending Markdown may still be dropped, so a little more than the limit is collected.
        if page.out.len() > bytes_max.saturating_mul(2) {
            break;
        }
    }
    page.finish(bytes_max)
}

/// The whitespace between two words.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Gap {
    None,
    Space,
    Line,
    Paragraph,
}

struct HtmlTextWriter<'a> {
    /// The page's URL, against which links are resolved.
    base: Option<&'a Url>,
    /// From the page's `<base>`.
    declared_base: Option<Url>,
    is_xml: bool,
    title: String,
    out: String,
    gap: Gap,
    /// Written before the next words: a bullet, or the marks of a heading.
    prefix: String,
    /// The hidden element, and how often it is open.
    hidden: Option<(Vec<u8>, usize)>,
    in_title: bool,
    preformatted: usize,
    /// The open lists: the next number, or `None` for bullets.
    lists: Vec<Option<u32>>,
    /// The target of the open link, and where its text starts.
    link: Option<(String, Option<usize>)>,
    /// Whether the row has a cell already.
    in_row: bool,
}

impl<'a> HtmlTextWriter<'a> {
    fn new(base: Option<&'a Url>) -> Self {
        Self {
            base,
            declared_base: None,
            is_xml: false,
            title: String::new(),
            out: String::new(),
            gap: Gap::None,
            prefix: String::new(),
            hidden: None,
            in_title: false,
            preformatted: 0,
            lists: Vec::new(),
            link: None,
            in_row: false,
        }
    }

    fn open(&mut self, tag: &StartTag<()>) {
        let name: &[u8] = &tag.name;
        if let Some((unseen, depth)) = &mut self.hidden {
            if unseen == name && !tag.self_closing {
                *depth += 1;
            }
            return;
        }
        if HIDDEN_ELEMENTS.contains(&name) {
            // `<svg/>` is closed at once; `<script/>` is not.
            if !tag.self_closing || !matches!(name, b"svg" | b"math") {
                self.hidden = Some((name.to_vec(), 1));
            }
            return;
        }
        match name {
            b"html" => self.is_xml |= tag.attributes.contains_key(b"xmlns".as_slice()),
            b"base" => self.set_base(tag),
            b"title" => self.in_title = true,
            b"br" => self.widen_gap(Gap::Line),
            b"hr" => self.widen_gap(Gap::Paragraph),
            b"pre" => {
                self.widen_gap(Gap::Paragraph);
                self.preformatted += 1;
            }
            b"ul" | b"menu" => self.open_list(None),
            b"ol" => self.open_list(Some(1)),
            b"li" => self.open_item(),
            b"tr" => {
                self.widen_gap(Gap::Line);
                self.in_row = false;
            }
            b"td" | b"th" => self.open_cell(),
            b"a" => self.open_link(tag),
            b"img" => self.write_attribute(tag, b"alt"),
            _ => self.open_block(name),
        }
    }

    fn close(&mut self, name: &[u8]) {
        if let Some((unseen, depth)) = &mut self.hidden {
            if unseen == name {
                *depth -= 1;
                if *depth == 0 {
                    self.hidden = None;
                }
            }
            return;
        }
        match name {
            b"title" => self.in_title = false,
            b"pre" => {
                self.preformatted = self.preformatted.saturating_sub(1);
                self.widen_gap(Gap::Paragraph);
            }
            b"ul" | b"ol" | b"menu" => {
                self.lists.pop();
                self.widen_gap(if self.lists.is_empty() { Gap::Paragraph } else { Gap::Line });
            }
            b"a" => self.close_link(),
            b"br" => self.widen_gap(Gap::Line),
            _ => self.widen_gap(block_gap(name)),
        }
    }

    fn open_block(&mut self, name: &[u8]) {
        self.widen_gap(block_gap(name));
        if let [b'h', level @ b'1'..=b'6'] = name {
            self.prefix = "#".repeat(usize::from(level - b'0')) + " ";
        }
    }

    fn open_list(&mut self, next: Option<u32>) {
        self.widen_gap(if self.lists.is_empty() { Gap::Paragraph } else { Gap::Line });
        self.lists.push(next);
    }

    fn open_item(&mut self) {
        self.widen_gap(Gap::Line);
        let depth = self.lists.len().clamp(1, LIST_DEPTH_MAX);
        self.prefix = "  ".repeat(depth - 1);
        match self.lists.last_mut() {
            Some(Some(next)) => {
                self.prefix.push_str(&format!("{next}. "));
                *next = next.saturating_add(1);
            }
            _ => self.prefix.push_str("- "),
        }
    }

    fn open_cell(&mut self) {
        if self.in_row {
            self.gap = Gap::None;
            self.out.push_str(" | ");
        }
        self.in_row = true;
    }

    /// The first valid one counts.
    fn set_base(&mut self, tag: &StartTag<()>) {
        let href = tag.attributes.get(b"href".as_slice()).map(|href| String::from_utf8_lossy(href));
        if let (None, Some(href)) = (&self.declared_base, href) {
            let url = Url::options().base_url(self.base).parse(href.trim()).ok();
            self.declared_base = url.filter(|url| matches!(url.scheme(), "http" | "https"));
        }
    }

    fn open_link(&mut self, tag: &StartTag<()>) {
        self.close_link();
        let href = tag.attributes.get(b"href".as_slice()).map(|href| String::from_utf8_lossy(href).into_owned());
        let href = href.filter(|href| !href.trim_start().starts_with('#'));
        let url = href.and_then(|href| {
            Url::options().base_url(self.declared_base.as_ref().or(self.base)).parse(href.trim()).ok()
        });
        let url = url.filter(|url| matches!(url.scheme(), "http" | "https") && url.as_str().len() <= LINK_BYTES_MAX);
        self.link = url.map(|url| (url.into(), None));
    }

    fn close_link(&mut self) {
        let Some((url, Some(start))) = self.link.take() else { return };
        let words = self.out.get(start..).unwrap_or_default();
        // A link around whole paragraphs, or around nothing, stays plain text.
        if words.trim().is_empty() || words.contains('\n') {
            return;
        }
        self.out.insert(start, '[');
        self.out.push_str("](");
        self.out.push_str(&url);
        self.out.push(')');
    }

    fn write_attribute(&mut self, tag: &StartTag<()>, name: &[u8]) {
        if let Some(words) = tag.attributes.get(name) {
            self.write_text(&String::from_utf8_lossy(words));
        }
    }

    fn widen_gap(&mut self, gap: Gap) {
        if gap > self.gap {
            self.gap = gap;
        }
    }

    fn write_gap(&mut self) {
        if !self.out.is_empty() {
            self.out.push_str(match self.gap {
                Gap::None => "",
                Gap::Space => " ",
                Gap::Line => "\n",
                Gap::Paragraph => "\n\n",
            });
        }
        self.gap = Gap::None;
        self.out.push_str(&std::mem::take(&mut self.prefix));
        if let Some((_, start @ None)) = &mut self.link {
            *start = Some(self.out.len());
        }
    }

    fn write_text(&mut self, words: &str) {
        if self.hidden.is_some() {
            return;
        }
        if self.in_title {
            self.title.push_str(words);
            return;
        }
        if self.preformatted > 0 {
            self.write_gap();
            self.out.push_str(words);
            return;
        }
        for (index, word) in words.split(|c: char| c.is_ascii_whitespace()).enumerate() {
            if index > 0 {
                self.widen_gap(Gap::Space);
            }
            if !word.is_empty() {
                self.write_gap();
                self.out.push_str(word);
            }
        }
    }

    fn finish(mut self, bytes_max: usize) -> ExtractedText {
        self.close_link();
        let title = self.title.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
        let text = match (title.is_empty(), self.out.is_empty()) {
            (true, _) => self.out,
            (false, true) => title,
            (false, false) => format!("{title}\n\n{}", self.out),
        };
        plain_text::normalize_text(&text, bytes_max)
    }
}

fn block_gap(name: &[u8]) -> Gap {
    match name {
        b"p" | b"h1" | b"h2" | b"h3" | b"h4" | b"h5" | b"h6" | b"blockquote" | b"table" | b"section" | b"article"
        | b"header" | b"footer" | b"main" | b"nav" | b"aside" | b"figure" | b"dl" | b"form" | b"fieldset"
        | b"details" | b"address" => Gap::Paragraph,
        b"div" | b"dt" | b"dd" | b"figcaption" | b"caption" | b"option" | b"summary" | b"legend" | b"li" | b"tr"
        | b"body" | b"html" | b"head" | b"label" | b"button" | b"textarea" => Gap::Line,
        _ => Gap::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(html: &str) -> String {
        html_to_text(html, Some(&Url::parse("https://site.example/a/b.html").unwrap()), 10_000).text
    }

    #[test]
    fn a_page_is_its_title_and_its_text_in_reading_order() {
        let html = "<!DOCTYPE html><html><head><title> A &amp;\n B </title><style>p{}</style>\
            <script>if (a < b) { document.write('<p>no') }</script></head><body><h1>One</h1><p>First <b>bold</b>,\n\
            second.<p>Third<br>line<ul><li>a<li>b<ol><li>x</li><li>y</li></ol></ul>\
            <table><tr><th>k<th>v</tr><tr><td>1<td>2</table><pre>  a\n   b</pre>\
            <svg><title>no</title><text>no</text></svg><!-- no --><noscript>no</noscript><img alt='a cat'>end";
        assert_eq!(
            read(html),
            "A & B\n\n# One\n\nFirst bold, second.\n\nThird\nline\n\n- a\n- b\n  1. x\n  2. y\n\nk | v\n1 | 2\n\n  a\n   b\n\na catend",
        );
    }

    #[test]
    fn links_are_shown_with_their_target_if_it_is_a_url() {
        let cases = [
            ("see <a href='/x?y=1'>this</a>.", "see [this](https://site.example/x?y=1)."),
            ("<a href='https://o.example'>o</a>", "[o](https://o.example/)"),
            ("<a href='javascript:alert(1)'>x</a>", "x"),
            ("<a href='data:text/html,x'>x</a>", "x"),
            ("<a href='#top'>up</a>", "up"),
            ("<a href='/x'> </a>y", "y"),
            ("<a href='/1'>one<a href='/2'>two</a>", "[one](https://site.example/1)[two](https://site.example/2)"),
            ("<a href='/1'><p>a</p><p>b</p></a>", "a\n\nb"),
            ("<a href='/1'>open", "[open](https://site.example/1)"),
            ("<base href='//o.example/b/'><base href=/c/><a href='x'>o</a>", "[o](https://o.example/b/x)"),
            ("<base target=_top><base href='data:,'><a href='x'>o</a>", "[o](https://site.example/a/x)"),
        ];
        for (html, wanted) in cases {
            assert_eq!(read(html), wanted, "{html}");
        }
        let long = format!("<a href='/{}'>x</a>", "y".repeat(1000));
        assert_eq!(read(&long), "x");
    }

    #[test]
    fn self_closing_tags_in_xhtml_hide_nothing() {
        let head = "<head><script src='a.js'/><title/><style/></head><body><iframe src='x'/><textarea/><svg><svg/><title/>no</svg><p>Words";
        for root in ["<?xml version='1.0'?><html>", "<html xmlns='http://www.w3.org/1999/xhtml'>"] {
            assert_eq!(read(&format!("{root}{head}")), "Words", "{root}");
        }
        assert_eq!(read("<html><script src='a.js'/><p>This is still the script"), "");
    }

    #[test]
    fn character_references_are_decoded() {
        for html in [
            &b"<meta charset=windows-1251><p>\xcf\xf0\xe8"[..],
            b"<meta http-equiv=content-type content='text/html; charset=windows-1251'><p>\xcf\xf0\xe8",
            b"<META CHARSET = \"windows-1251\"><p>\xcf\xf0\xe8",
            b"<meta name=a content='of which charset'><!-- <meta charset=koi8-r> --><meta charset=windows-1251><p>\xcf\xf0\xe8",
            b"<meta name=a content='charset=koi8-r'><meta charset=windows-1251><p>\xcf\xf0\xe8",
            b"<?xml version='1.0' encoding='windows-1251'?><html><p>\xcf\xf0\xe8",
        ] {
            assert_eq!(read(&decode_html(html, None)), "При");
            assert_eq!(read(&decode_html(html, Some("no-such-set"))), "При", "a word that means nothing does not count");
            assert_ne!(read(&decode_html(html, Some("koi8-r"))), "При", "the server's word counts more");
        }
        assert_eq!(read(&decode_html("<meta charset=utf-16le><p>é".as_bytes(), None)), "é");
    }

    #[test]
    fn unclosed_tags_take_linear_time() {
        let deep = "<div><a href=x><ul><li>".repeat(50_000) + "end";
        assert_eq!(read(&deep).trim_start(), "- [end](https://site.example/a/x)");
        let unclosed = "<svg>".repeat(100_000) + "hidden";
        assert_eq!(read(&unclosed), "");
    }

    #[test]
    fn reading_stops_at_the_limit() {
        let html = "<p>word ".repeat(100_000);
        let ExtractedText { text, truncated } = html_to_text(&html, None, 1000);
        assert_eq!((text.len(), truncated), (1000, true));
    }
}
