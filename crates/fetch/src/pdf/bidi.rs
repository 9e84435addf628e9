//! The reading order of the glyphs of a line.
//!
//! Arabic and Hebrew are drawn from the left and read from the right. Accents may be drawn before their letters.

use std::borrow::Cow;

/// Spacing accents, letters, and the composed characters.
const ACCENTS: [(char, &str, &str); 7] = [
    ('\u{b4}', "AEIOUYaeiouyıCcNnSsZz", "ÁÉÍÓÚÝáéíóúýíĆćŃńŚśŹź"),
    ('`', "AEIOUaeiouı", "ÀÈÌÒÙàèìòùì"),
    ('ˆ', "AEIOUaeiouı", "ÂÊÎÔÛâêîôûî"),
    ('\u{a8}', "AEIOUaeiouyı", "ÄËÏÖÜäëïöüÿï"),
    ('˜', "ANOano", "ÃÑÕãñõ"),
    ('ˇ', "CSZEReszcrDdNnTt", "ČŠŽĚŘěšžčřĎďŇňŤť"),
    ('\u{b8}', "Cc", "Çç"),
];

/// Start of the Arabic presentation forms.
const ARABIC_FORMS_START: char = '\u{fe80}';
/// The letters in order, with the number of their forms.
const ARABIC_FORMS: [(&str, usize); 12] = [
    ("ء", 1),
    ("آ أ ؤ إ", 2),
    ("ئ", 4),
    ("ا", 2),
    ("ب", 4),
    ("ة", 2),
    ("ت ث ج ح خ", 4),
    ("د ذ ر ز", 2),
    ("س ش ص ض ط ظ ع غ ف ق ك ل م ن ه", 4),
    ("و ى", 2),
    ("ي", 4),
    ("لآ لأ لإ لا", 2),
];

#[derive(Clone, Copy, PartialEq)]
enum TextDirection {
    RightToLeft,
    LeftToRight,
    Number,
    Space,
    Neutral,
}

pub(super) fn is_right_to_left(text: &str) -> bool {
    direction_of(text) == TextDirection::RightToLeft
}

fn direction_of(text: &str) -> TextDirection {
    let of = |c: char| match c {
        '\u{660}'..='\u{669}' | '\u{6f0}'..='\u{6f9}' => TextDirection::Number,
        '\u{590}'..='\u{8ff}' | '\u{fb1d}'..='\u{fdff}' | '\u{fe70}'..='\u{feff}' => TextDirection::RightToLeft,
        '\u{10800}'..='\u{10fff}' | '\u{1e800}'..='\u{1eeff}' => TextDirection::RightToLeft,
        c if c.is_numeric() => TextDirection::Number,
        c if c.is_alphabetic() => TextDirection::LeftToRight,
        c if c.is_whitespace() => TextDirection::Space,
        _ => TextDirection::Neutral,
    };
    text.chars()
        .map(of)
        .find(|way| matches!(way, TextDirection::RightToLeft | TextDirection::LeftToRight | TextDirection::Number))
        .unwrap_or_else(|| text.chars().next().map_or(TextDirection::Neutral, of))
}

/// Converts visual order to logical order.
pub(super) fn to_logical_order(words: &mut [Cow<'_, str>]) {
    let count = |wanted: TextDirection| words.iter().filter(|word| direction_of(word) == wanted).count();
    if count(TextDirection::RightToLeft) > count(TextDirection::LeftToRight) {
        reverse_with_ltr_runs(words);
        return;
    }
    let mut rest = words;
    while let Some(start) = rest.iter().position(|word| is_right_to_left(word)) {
        let (_, from) = rest.split_at_mut(start);
        let end = from.iter().position(|word| direction_of(word) == TextDirection::LeftToRight).unwrap_or(from.len());
        let (run, behind) = from.split_at_mut(end);
        let last = run.iter().rposition(|word| is_right_to_left(word)).map_or(0, |last| last + 1);
        reverse_with_ltr_runs(run.split_at_mut(last).0);
        rest = behind;
    }
}

/// Reverses the line, except for left-to-right runs within it.
fn reverse_with_ltr_runs(words: &mut [Cow<'_, str>]) {
    words.reverse();
    let mut rest = words;
    while let Some(start) =
        rest.iter().position(|word| matches!(direction_of(word), TextDirection::LeftToRight | TextDirection::Number))
    {
        let (_, from) = rest.split_at_mut(start);
        let (mut last, mut is_word, mut has_space) = (0, false, false);
        for (index, word) in from.iter().enumerate() {
            match direction_of(word) {
                TextDirection::RightToLeft => break,
                TextDirection::LeftToRight => (last, is_word) = (index, true),
                // Numbers with a space between them are separate.
                TextDirection::Number if is_word || !has_space => last = index,
                TextDirection::Space => has_space = true,
                TextDirection::Number | TextDirection::Neutral => {}
            }
        }
        let (run, behind) = from.split_at_mut(last + 1);
        run.reverse();
        rest = behind;
    }
}

/// Joins the words, with ligatures split and Arabic forms replaced by their letters.
pub(super) fn join_normalized(words: &[Cow<'_, str>]) -> String {
    let mut out = String::new();
    for c in words.iter().flat_map(|word| word.chars()) {
        match c {
            'ﬀ' => out.push_str("ff"),
            'ﬁ' => out.push_str("fi"),
            'ﬂ' => out.push_str("fl"),
            'ﬃ' => out.push_str("ffi"),
            'ﬄ' => out.push_str("ffl"),
            'ﬅ' | 'ﬆ' => out.push_str("st"),
            ARABIC_FORMS_START..='\u{fefc}' => out.push_str(arabic_base_letter(c)),
            c if c.is_whitespace() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

fn arabic_base_letter(form: char) -> &'static str {
    let forms = ARABIC_FORMS
        .iter()
        .flat_map(|(letters, count)| letters.split(' ').flat_map(|one| std::iter::repeat_n(one, *count)));
    (ARABIC_FORMS_START..).zip(forms).find(|(one, _)| *one == form).map_or("", |(_, letter)| letter)
}

pub(super) fn compose_accent(accent: &str, letter: &str) -> Option<char> {
    let (_, letters, both) = ACCENTS.iter().find(|(sign, ..)| accent.starts_with(*sign))?;
    let index = letters.chars().position(|one| letter.starts_with(one))?;
    both.chars().nth(index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model_testing::{Rng, test_seeds};

    fn read(drawn: &str) -> String {
        let mut words: Vec<Cow<'_, str>> = drawn.chars().map(|c| c.to_string().into()).collect();
        to_logical_order(&mut words);
        join_normalized(&words)
    }

    #[test]
    fn right_to_left_text_is_reordered() {
        for (drawn, wanted) in [
            ("םולש", "שלום"),
            ("plain words 12", "plain words 12"),
            ("said םולש 12 ןכ again", "said כן 12 שלום again"),
            (".2026 תנשב PDF file ץבוק", "קובץ PDF file בשנת 2026."),
            ("34 12 ןכ", "כן 12 34"),
            ("ןכ 1,234.56", "1,234.56 כן"),
        ] {
            assert_eq!(read(drawn), wanted, "{drawn}");
        }
    }

    #[test]
    fn presentation_forms_map_to_their_letters() {
        assert_eq!(join_normalized(&["oﬃce\tﬁne\u{a0}ﬂow".into()]), "office fine flow");
        assert_eq!(
            join_normalized(&["\u{fe80}\u{fe8d}\u{fedf}\u{feee}\u{fef1}\u{fef4}\u{fefb}\u{fefc}".into()]),
            "ءالوييلالا"
        );
    }

    #[test]
    fn reordering_loses_no_letter() {
        let pieces = ["א", "ب", "a", "1", " ", ".", "٣", "("];
        for seed in test_seeds() {
            let mut rng = Rng::new(seed);
            let drawn: String = (0..rng.between(0, 30)).map(|_| rng.choose(" ", &pieces)).collect();
            let (mut before, mut after): (Vec<char>, Vec<char>) =
                (drawn.chars().collect(), read(&drawn).chars().collect());
            before.sort_unstable();
            after.sort_unstable();
            assert_eq!(before, after, "SEED={seed} {drawn:?}");
        }
    }
}
