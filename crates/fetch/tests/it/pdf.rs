//! Valid PDFs, damaged ones, and malicious ones.

use crate::pdf_maker::{HELVETICA, Maker, document, endless, lines};
use bytes::Bytes;
use fetch::pdf_process::PdfProcess;
use fetch::{DocumentContent, DocumentFormat, DocumentReader, FetchError, FetchedFile, PdfReader, ReadLimits};
use std::time::{Duration, Instant};
use url::Url;

/// Debug builds of libraries are slow; the tests check that reading ends at all.
const PATIENCE: Duration = Duration::from_secs(60);

fn subprocess_reader() -> PdfReader {
    PdfReader::Subprocess(PdfProcess::new(env!("CARGO_BIN_EXE_read-pdf").into(), Vec::new()))
}

fn file(bytes: Vec<u8>) -> FetchedFile {
    FetchedFile {
        url: Url::parse("https://site.example/a.pdf").unwrap(),
        name: "a.pdf".to_owned(),
        format: DocumentFormat::sniff(&bytes, "application/pdf", "a.pdf").unwrap(),
        charset: None,
        bytes: Bytes::from(bytes),
    }
}

async fn read_with(pdf: PdfReader, bytes: Vec<u8>) -> Result<(String, bool), FetchError> {
    let limits = ReadLimits { timeout: PATIENCE, ..ReadLimits::default() };
    match DocumentReader::new(limits, pdf).read(&file(bytes)).await? {
        DocumentContent::Text { text, truncated } => Ok((text, truncated)),
        DocumentContent::Image { .. } => panic!("a PDF is no image"),
    }
}

pub(crate) async fn read(bytes: Vec<u8>) -> Result<(String, bool), FetchError> {
    let here = read_with(PdfReader::InProcess, bytes.clone()).await;
    assert_eq!(here, read_with(subprocess_reader(), bytes).await, "here and apart are the same");
    here
}

#[tokio::test]
async fn lines_and_pages_are_in_order() {
    let bytes = document(&[&["First line", "Second \\(2\\) line", "na\\357ve \\200"], &["Page two"]]);
    let wanted = "First line\nSecond (2) line\nnaïve €\n\nPage two";
    assert_eq!(read(bytes).await, Ok((wanted.to_owned(), false)));
}

#[tokio::test]
async fn words_are_separated_at_gaps() {
    let mut maker = Maker::new();
    let font = maker.object(HELVETICA);
    let content = b"BT /F1 10 Tf 1 0 0 1 72 700 Tm [(W) 20 (ords) -300 (apart)] TJ 1 0 0 1 200 700 Tm (same line) Tj \
        1 0 0 1 72 650 Tm (far below) Tj 0 -12 TD (next) Tj (line) ' ET";
    let content = maker.stream("", content);
    let bytes = maker.with_pages(font, &[content], "");
    assert_eq!(read(bytes).await, Ok(("Words apart same line\n\nfar below\nnext\nline".to_owned(), false)));
}

#[tokio::test]
async fn codes_are_decoded_by_the_font() {
    let mut maker = Maker::new();
    let map = b"/CIDInit /ProcSet findresource begin 12 dict begin begincmap\n\
        1 begincodespacerange\n<0000> <ffff>\nendcodespacerange\n\
        2 beginbfchar\n<0001> <0054>\n<0002> <1EBF>\nendbfchar\n\
        1 beginbfrange\n<0010> <0012> <0061>\nendbfrange\nendcmap end end";
    let map = maker.packed("", map);
    let font = format!(
        "<< /Type /Font /Subtype /Type0 /BaseFont /X /Encoding /Identity-H /ToUnicode {map} 0 R /DescendantFonts [] >>"
    );
    let font = maker.object(font);
    let content = maker.packed("", b"BT /F1 10 Tf 72 700 Td <00010002001000110012> Tj ET");
    let bytes = maker.with_pages(font, &[content], "");
    assert_eq!(read(bytes).await, Ok(("Tếabc".to_owned(), false)));
}

#[tokio::test]
async fn codes_of_a_predefined_encoding_need_no_cmap() {
    for (set, codes, wanted) in [
        ("UniGB-UCS2-H", "8D22 52A1 62A5 544A FF1A 0033", "财务报告：3"),
        ("UniJIS-UTF16-V", "65E5 672C D83D DE00", "日本😀"),
        ("GBK-EUC-H", "B2C6 CEF1", "财务"),
        ("90ms-RKSJ-H", "93FA 967B", "日本"),
        ("ETen-B5-H", "B0AA B3F8", "高報"),
        ("KSCms-UHC-H", "C7D1 B1B9", "한국"),
    ] {
        let mut maker = Maker::new();
        let font = format!("<< /Type /Font /Subtype /Type0 /BaseFont /X /Encoding /{set} /DescendantFonts [] >>");
        let font = maker.object(font);
        let content = maker.packed("", format!("BT /F1 10 Tf 72 700 Td <{codes}> Tj ET").as_bytes());
        let bytes = maker.with_pages(font, &[content], "");
        assert_eq!(read(bytes).await, Ok((wanted.to_owned(), false)), "{set}");
    }
}

#[tokio::test]
async fn a_form_xobject_is_read_where_used_and_recursion_ends() {
    let mut maker = Maker::new();
    let font = maker.object(HELVETICA);
    let own = maker.next();
    let resources =
        format!("/Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources << /XObject << /X {own} 0 R >> >>");
    maker.packed(&resources, b"BT /F1 12 Tf 72 600 Td (inside) Tj ET /X Do /X Do /X Do");
    let mut content = lines(&["before"]);
    content.extend(b" /X Do ");
    let content = maker.stream("", &content);
    let bytes = maker.with_pages(font, &[content], &format!("/XObject << /X {own} 0 R >>"));
    let (text, _) = read(bytes).await.unwrap();
    assert!(text.starts_with("before\n\ninside"), "{}", &text[..40]);
    assert!(text.len() < 1024 * 1024);
}

#[tokio::test]
async fn a_pdf_without_text_or_unreadable_gives_an_error() {
    let mut scanned = Maker::new();
    let font = scanned.object(HELVETICA);
    let content = scanned.stream("", b"q 612 0 0 792 0 0 cm /Im0 Do Q");
    let scanned = scanned.with_pages(font, &[content], "");
    let whole = document(&[&["text"]]);
    let mut locked = Maker::new();
    let tree = locked.object("<< /Type /Pages /Count 0 /Kids [] >>");
    let root = locked.object(format!("<< /Type /Catalog /Pages {tree} 0 R >>"));
    let lock = locked.object("<< /Filter /Standard /V 1 /R 2 /O (0123456789abcdef0123456789abcdef) /U (0123456789abcdef0123456789abcdef) /P -4 >>");
    let locked = locked.finish(root, &format!("/Encrypt {lock} 0 R /ID [(a) (b)]"));
    for bytes in [scanned, locked, b"%PDF-1.7".to_vec(), b"%PDF-1.7\n%%EOF".to_vec(), whole[..whole.len() / 3].to_vec()]
    {
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned();
        assert_eq!(read(bytes).await, Err(FetchError::Unreadable), "{shown}");
    }
}

#[tokio::test]
async fn twenty_megabytes_are_read_in_time() {
    let mut maker = Maker::new();
    let font = maker.object(HELVETICA);
    let words = lines(&["The quick brown fox jumps over the lazy dog"; 40]);
    let contents: Vec<usize> = (0..200).map(|_| maker.packed("", &words)).collect();
    maker.picture(19 * 1024 * 1024);
    let bytes = maker.with_pages(font, &contents, "");
    assert!(bytes.len() > 19 * 1024 * 1024);
    let began = Instant::now();
    let (text, truncated) = read_with(subprocess_reader(), bytes).await.unwrap();
    println!("{} bytes of text in {:?}", text.len(), began.elapsed());
    assert_eq!((text.matches("lazy dog").count(), truncated), (200 * 40, false));
}

#[tokio::test]
async fn text_is_truncated_at_its_limit() {
    let bytes = document(&[&["0123456789"; 100]]);
    let limits = ReadLimits { text_bytes_max: 105, timeout: PATIENCE, ..ReadLimits::default() };
    for pdf in [PdfReader::InProcess, subprocess_reader()] {
        let found = DocumentReader::new(limits.clone(), pdf).read(&file(bytes.clone())).await.unwrap();
        let DocumentContent::Text { text, truncated } = found else { panic!("no text") };
        assert_eq!((text.len(), truncated), (105, true));
    }
}

#[tokio::test]
async fn a_page_that_decompresses_to_too_much_is_left_out() {
    let mut maker = Maker::new();
    let font = maker.object(HELVETICA);
    let bomb = maker.packed("", &vec![b' '; 100 * 1024 * 1024]);
    let page = maker.packed("", &lines(&["readable"]));
    let bytes = maker.with_pages(font, &[bomb, page], "");
    assert!(bytes.len() < 1024 * 1024);
    assert_eq!(read(bytes).await, Ok(("readable".to_owned(), true)));
}

#[tokio::test]
async fn a_file_that_asks_for_all_memory_ends_only_its_own_process() {
    // A list of numbers takes fifty times more memory than bytes in the file.
    let mut maker = Maker::new();
    let font = maker.object(HELVETICA);
    maker.object(format!("[{}]", "0 ".repeat(1_500_000)));
    let content = maker.packed("", &lines(&["text"]));
    let bomb = maker.with_pages(font, &[content], "");
    assert!(bomb.len() < 4 * 1024 * 1024);
    let PdfReader::Subprocess(roomy) = subprocess_reader() else { panic!("apart is apart") };
    let tight = PdfProcess { memory_bytes_max: 128 * 1024 * 1024, ..roomy };
    assert_eq!(read_with(PdfReader::Subprocess(tight), bomb.clone()).await, Err(FetchError::Unreadable));
    assert_eq!(
        read_with(subprocess_reader(), bomb).await,
        Ok(("text".to_owned(), false)),
        "with more room it can be read"
    );
}

#[tokio::test]
async fn a_file_that_takes_forever_is_aborted_and_its_process_killed() {
    let bytes = endless();
    assert!(bytes.len() < 10 * 1024 * 1024, "{}", bytes.len());
    let limits = ReadLimits { timeout: Duration::from_millis(500), ..ReadLimits::default() };
    let began = Instant::now();
    let found = DocumentReader::new(limits, subprocess_reader()).read(&file(bytes)).await;
    assert!(matches!(found, Err(FetchError::Unreadable | FetchError::ReadTimedOut)), "{found:?}");
    assert!(began.elapsed() < PATIENCE);
}

#[tokio::test]
async fn pages_read_before_the_time_out_are_returned() {
    let mut maker = Maker::new();
    let font = maker.object(HELVETICA);
    let own = maker.next();
    let form = format!("/Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources << /XObject << /X {own} 0 R >> >>");
    maker.stream(&form, "/X Do ".repeat(40).as_bytes());
    let content = maker.packed("", &[lines(&["before"]), b" /X Do".to_vec()].concat());
    let bytes = maker.with_pages(font, &[content], &format!("/XObject << /X {own} 0 R >>"));
    let limits = ReadLimits { timeout: Duration::from_secs(4), ..ReadLimits::default() };
    let found = DocumentReader::new(limits, subprocess_reader()).read(&file(bytes)).await;
    assert_eq!(found, Ok(DocumentContent::Text { text: "before".to_owned(), truncated: true }));
}

#[tokio::test]
async fn a_text_does_not_wait_for_slow_documents() {
    let limits = ReadLimits { concurrent_reads_max: 1, ..ReadLimits::default() };
    let reader = DocumentReader::new(limits, subprocess_reader());
    let document = file(endless());
    let mut slow = std::pin::pin!(reader.read(&document));
    let text = FetchedFile { format: DocumentFormat::Plain, bytes: Bytes::from_static(b"words"), ..document.clone() };
    tokio::select! {
        biased;
        found = &mut slow => panic!("{found:?}"),
        found = reader.read(&text) => assert!(found.is_ok(), "{found:?}"),
    }
}

#[tokio::test]
async fn a_deeply_nested_file_is_survived() {
    for (open, close) in [("[", "]"), ("<< /A ", ">>"), ("(", ")")] {
        let mut maker = Maker::new();
        let font = maker.object(HELVETICA);
        maker.object(open.repeat(300_000) + &close.repeat(300_000));
        let mut deep = lines(&["text"]);
        deep.extend(open.repeat(300_000).as_bytes());
        let content = maker.packed("", &deep);
        let bytes = maker.with_pages(font, &[content], "");
        // Whether it can be read is up to the library; that this process survives is up to us.
        let found = read_with(subprocess_reader(), bytes).await;
        assert!(found.is_ok() || found == Err(FetchError::Unreadable), "{open} {found:?}");
    }
}

#[tokio::test]
async fn a_missing_program_reads_nothing() {
    let nobody = PdfReader::Subprocess(PdfProcess::new("/nonexistent/program".into(), Vec::new()));
    assert_eq!(read_with(nobody, document(&[&["text"]])).await, Err(FetchError::Unreadable));
}
