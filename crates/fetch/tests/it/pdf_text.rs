//! Words from glyphs as real programs position them.

use crate::pdf::read;
use crate::pdf_maker::{HELVETICA, Maker, lines};

/// The text of a page with this content and this font.
async fn words(font: &str, content: &str) -> String {
    let mut maker = Maker::new();
    let font = maker.object(font);
    page(maker, font, content).await
}

async fn page(mut maker: Maker, font: usize, content: &str) -> String {
    let content = maker.packed("", content.as_bytes());
    read(maker.with_pages(font, &[content], "")).await.unwrap().0
}

const SENTENCE: &str = "will WAVE to all";

/// The widths of Helvetica at size ten.
fn helvetica(c: char) -> f32 {
    match c {
        'i' | 'l' => 2.22,
        'w' => 7.22,
        'W' => 9.44,
        'A' | 'V' | 'E' => 6.67,
        'o' | 'a' => 5.56,
        _ => 2.78,
    }
}

type Put<'p> = &'p dyn Fn(f32, char) -> String;

/// Each letter of the sentence by itself, positioned by `put`. Spaces are only left out.
fn letters(width: impl Fn(char) -> f32, put: impl Fn(f32, char) -> String) -> String {
    let mut x = 72.0;
    let mut content = String::new();
    for c in SENTENCE.chars() {
        if c != ' ' {
            content += &put(x, c);
        }
        x += width(c);
    }
    content
}

#[tokio::test]
async fn letters_positioned_one_by_one_form_words() {
    let put: [(&str, Put<'_>); 7] = [
        ("by a matrix", &|x, c| format!("BT /F1 10 Tf 1 0 0 1 {x} 700 Tm ({c}) Tj ET ")),
        ("by a move", &|x, c| format!("BT /F1 10 Tf {x} 700 Td ({c}) Tj ET ")),
        ("by the page's matrix", &|x, c| format!("q 1 0 0 1 {x} 700 cm BT /F1 10 Tf ({c}) Tj ET Q ")),
        ("by a large matrix", &|x, c| format!("BT /F1 1 Tf 10 0 0 10 {x} 700 Tm ({c}) Tj ET ")),
        ("upside down", &|x, c| format!("q 1 0 0 -1 0 792 cm BT /F1 10 Tf 1 0 0 -1 {x} 92 Tm ({c}) Tj ET Q ")),
        ("upwards", &|x, c| format!("BT /F1 10 Tf 0 1 -1 0 300 {x} Tm ({c}) Tj ET ")),
        ("small", &|x, c| format!("q .1 0 0 .1 0 0 cm BT /F1 100 Tf {} 7000 Td ({c}) Tj ET Q ", x * 10.0)),
    ];
    for (how, put) in put {
        assert_eq!(words(HELVETICA, &letters(helvetica, put)).await, SENTENCE, "{how}");
    }
    let spaces: String = SENTENCE.chars().map(|c| format!("({c}) Tj {} 0 Td ", helvetica(c))).collect();
    assert_eq!(words(HELVETICA, &format!("BT /F1 10 Tf 72 700 Td {spaces} ET")).await, SENTENCE);
}

#[tokio::test]
async fn glyph_widths_come_from_the_font() {
    let by_matrix = |x: f32, c: char| format!("1 0 0 1 {x} 700 Tm ({c}) Tj ");
    let all = |width: &str| width.repeat(95);
    for (font, width) in [
        ("<< /Type /Font /Subtype /Type1 /BaseFont /Courier >>".to_owned(), 6.0),
        (format!("<< /Type /Font /Subtype /TrueType /FirstChar 32 /Widths [{}] >>", all("900 ")), 9.0),
        ("<< /Type /Font /Subtype /TrueType /FontDescriptor << /MissingWidth 900 >> >>".to_owned(), 9.0),
        (
            format!(
                "<< /Type /Font /Subtype /Type3 /FontMatrix [.1 0 0 .1 0 0] /CharProcs << >> /FirstChar 32 \
                 /Encoding /WinAnsiEncoding /Widths [{}] >>",
                all("6 ")
            ),
            6.0,
        ),
    ] {
        let content = format!("BT /F1 10 Tf {} ET", letters(|_| width, by_matrix));
        assert_eq!(words(&font, &content).await, SENTENCE, "{font}");
    }
}

#[tokio::test]
async fn cid_fonts_have_widths_by_glyph_number() {
    let map = b"1 begincodespacerange <0000> <ffff> endcodespacerange 1 beginbfrange <0020> <007e> <0020> endbfrange";
    for widths in ["/DW 800", "/W [0 200 800]", "/DW 100 /W [32 33 200 119 [800] 97 [800] 34 118 800 98 126 800]"] {
        let mut maker = Maker::new();
        let map = maker.packed("", map);
        let below = maker.object(format!("<< /Type /Font /Subtype /CIDFontType2 {widths} >>"));
        let font = maker.object(format!(
            "<< /Type /Font /Subtype /Type0 /Encoding /Identity-H /ToUnicode {map} 0 R /DescendantFonts [{below} 0 R] >>"
        ));
        let put = |x: f32, c: char| format!("1 0 0 1 {x} 700 Tm <00{:02x}> Tj ", u32::from(c));
        let content = format!("BT /F1 10 Tf {} ET", letters(|_| 8.0, put));
        assert_eq!(page(maker, font, &content).await, SENTENCE, "{widths}");
    }
}

#[tokio::test]
async fn letter_spaced_text_still_forms_words() {
    let by_matrix = |x: f32, c: char| format!("1 0 0 1 {x} 700 Tm ({c}) Tj ");
    let apart = format!("BT /F1 10 Tf {} ET", letters(|c| helvetica(c) + 3.0, by_matrix));
    assert_eq!(words(HELVETICA, &apart).await, SENTENCE);
    assert_eq!(words(HELVETICA, "BT /F1 10 Tf 4 Tc 72 700 Td (set apart) Tj ET").await, "set apart");
    // The same gap everywhere has no meaning, and a row of numbers is no word.
    let row = "BT /F1 10 Tf [(a) -300 (b) -300 (c) -300 (d) -300 (e) -300 (f) -300 (g)] TJ ET";
    assert_eq!(words(HELVETICA, row).await, "a b c d e f g");
    let row = "BT /F1 10 Tf [(1) -300 (2) -300 (3) -300 (4) -300 (5) -300 (6) -900 (7)] TJ ET";
    assert_eq!(words(HELVETICA, row).await, "1 2 3 4 5 6 7");
}

#[tokio::test]
async fn spaces_are_inserted_only_at_gaps() {
    // A gap between two letters, and a drawn space that moves letters together.
    let content = "BT /F1 10 Tf 72 700 Td (ove) Tj 16.12 0 Td 3 Tc (rt) Tj 9.11 0 Td 0 Tc (he) Tj \
        40 0 Td -.9 Tc -1.7 Tw (A V) Tj 12.62 0 Td 0 Tc (E) Tj ET";
    assert_eq!(words(HELVETICA, content).await, "over the AVE");
    let content = "BT /F1 10 Tf 50 Tz 72 700 Td (half) Tj 8.06 0 Td (wide) Tj 12 0 Td (words) Tj ET";
    assert_eq!(words(HELVETICA, content).await, "halfwide words");
}

#[tokio::test]
async fn superscript_and_subscript_stay_on_the_line() {
    let content = "BT /F1 12 Tf 72 700 Td (E = mc) Tj /F1 7 Tf 5 Ts (2) Tj 0 Ts /F1 12 Tf (, H) Tj \
        /F1 7 Tf 53 -3 Td (2) Tj /F1 12 Tf 4 3 Td (O) Tj ET";
    assert_eq!(words(HELVETICA, content).await, "E = mc2, H2O");
}

#[tokio::test]
async fn a_word_drawn_twice_is_read_once() {
    let content = "BT /F1 12 Tf 72 700 Td (Bold) Tj .3 0 Td (Bold) Tj 40 0 Td (all all) Tj ET \
        BT /F1 7 Tf 72 650 Td (1) Tj 0 -3 Td (1) Tj ET";
    assert_eq!(words(HELVETICA, content).await, "Bold all all\n\n11");
}

#[tokio::test]
async fn an_accent_drawn_over_its_letter_is_combined() {
    let content = "BT /F1 10 Tf 72 700 Td [(caf) 0 (\\264) 433 (e Z) -20 (\\250) 440 (urich, `a` \\264 e)] TJ ET";
    assert_eq!(words(HELVETICA, content).await, "café Zürich, `a` ´ e");
}

#[tokio::test]
async fn right_to_left_text_is_read_in_either_drawing_order() {
    let map = b"1 begincodespacerange <00> <ff> endcodespacerange 1 beginbfrange <80> <9a> <05d0> endbfrange";
    for content in ["<8d85 20 8c8699> Tj", "<99> Tj -5 0 Td <86> Tj -5 0 Td <8c> Tj -10 0 Td <85> Tj -5 0 Td <8d> Tj"] {
        let mut maker = Maker::new();
        let map = maker.packed("", map);
        let font = maker.object(format!(
            "<< /Type /Font /Subtype /TrueType /Encoding /WinAnsiEncoding /ToUnicode {map} 0 R /FirstChar 32 /Widths [{}] >>",
            "500 ".repeat(200)
        ));
        let content = format!("BT /F1 10 Tf 72 700 Td {content} ET");
        assert_eq!(page(maker, font, &content).await, "שזל ום", "{content}");
    }
}

#[tokio::test]
async fn vertical_text_is_read_in_columns() {
    let font = "<< /Type /Font /Subtype /Type0 /Encoding /UniJIS-UTF16-V /DescendantFonts [] >>";
    let content = "BT /F1 10 Tf 300 700 Td <65E5672C> Tj 0 -20 Td <8A9E> Tj -15 20 Td <6587> Tj ET";
    assert_eq!(words(font, content).await, "日本語\n文");
}

#[tokio::test]
async fn actual_text_replaces_its_glyphs() {
    let content = "BT /F1 10 Tf 72 700 Td /Span << /ActualText (office) >> BDC (o) Tj (#ce) Tj EMC ( work inter) Tj \
        /Span << /ActualText <FEFF00AD> >> BDC (-) Tj EMC 0 -12 Td /P << /MCID 0 >> BDC (national) Tj EMC ET";
    assert_eq!(words(HELVETICA, content).await, "office work international");
}

#[tokio::test]
async fn an_incomplete_or_invalid_font_is_read_as_far_as_possible() {
    let odd = "<< /Type /Font /Subtype /Type1 /Encoding << /Differences [97 /A /f_i /uni00E9 /g55 /i.alt] >> >>";
    assert_eq!(words(odd, "BT /F1 10 Tf (abcde xyz) Tj ET").await, "Afiédi xyz");
    assert_eq!(words("<< /Subtype /Type1 /BaseFont /Arial >>", "BT /F1 10 Tf (no type) Tj ET").await, "no type");
    let symbol = "<< /Type /Font /Subtype /Type1 /BaseFont /Symbol >>";
    assert_eq!(words(symbol, "BT /F1 10 Tf (abW) Tj ET").await, "αβΩ");
    let mut maker = Maker::new();
    let map = maker.packed("", b"1 beginbfchar <01> <00660069> endbfchar");
    let font = format!("<< /Type /Font /Subtype /Type1 /Encoding /WinAnsiEncoding /ToUnicode {map} 0 R >>");
    let font = maker.object(font);
    assert_eq!(page(maker, font, "BT /F1 10 Tf (\\001ne) Tj ET").await, "fine");
}

#[tokio::test]
async fn a_page_inherits_from_its_parents() {
    let mut maker = Maker::new();
    let content = maker.packed("", &lines(&["inherited"]));
    let tree = maker.next() + 1;
    let page = maker.object(format!("<< /Type /Page /Parent {tree} 0 R /Contents {content} 0 R >>"));
    let fonts = format!("<< /Font << /F1 {HELVETICA} >> >>");
    maker.object(format!("<< /Type /Pages /Count 1 /Kids [{page} 0 R] /Resources {fonts} >>"));
    let root = maker.object(format!("<< /Type /Catalog /Pages {tree} 0 R >>"));
    assert_eq!(read(maker.finish(root, "")).await, Ok(("inherited".to_owned(), false)));
}

#[tokio::test]
async fn form_fields_are_read_and_hidden_ones_are_not() {
    let mut maker = Maker::new();
    let font = maker.object(HELVETICA);
    let form = format!("/Type /XObject /Subtype /Form /BBox [0 0 99 20] /Resources << /Font << /F1 {font} 0 R >> >>");
    let mut look =
        |text: &str| maker.packed(&form, format!("/Tx BMC BT /F1 10 Tf 2 5 Td ({text}) Tj ET EMC").as_bytes());
    let (alice, secret, yes, no) = (look("Alice"), look("secret"), look("yes"), look("no"));
    let field = |y: u32, rest: String| format!("<< /Subtype /Widget /Rect [72 {y} 200 {}] {rest} >>", y + 20);
    let notes = [
        field(600, format!("/F 4 /AP << /N {alice} 0 R >>")),
        field(500, format!("/F 2 /AP << /N {secret} 0 R >>")),
        field(400, format!("/AS /On /AP << /N << /On {yes} 0 R /Off {no} 0 R >> >>")),
    ];
    let content = maker.packed("", &lines(&["Name"]));
    let tree = maker.next() + 1;
    let page = maker.object(format!(
        "<< /Type /Page /Parent {tree} 0 R /Resources << /Font << /F1 {font} 0 R >> >> /Contents {content} 0 R /Annots [{}] >>",
        notes.concat()
    ));
    maker.object(format!("<< /Type /Pages /Count 1 /Kids [{page} 0 R] >>"));
    let root = maker.object(format!("<< /Type /Catalog /Pages {tree} 0 R >>"));
    assert_eq!(read(maker.finish(root, "")).await, Ok(("Name\n\nAlice\n\nyes".to_owned(), false)));
}

#[tokio::test]
async fn unbalanced_operators_stay_small_in_memory() {
    let mut content = "q ".repeat(100_000);
    content += &format!("/S << /ActualText ({}) >> BDC ", "a".repeat(20_000)).repeat(300);
    content += "BT /F1 10 Tf 72 700 Td ";
    content += &format!("({}) Tj ", "x".repeat(100_000));
    content += "ET";
    let (text, truncated) = {
        let mut maker = Maker::new();
        let font = maker.object(HELVETICA);
        let content = maker.packed("", content.as_bytes());
        read(maker.with_pages(font, &[content], "")).await.unwrap()
    };
    assert_eq!((text.len(), truncated), (20_000, false), "a mark is said once");
}
