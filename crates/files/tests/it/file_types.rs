//! File types, and what a browser is told about them.

use files::{FileType, content_disposition, sanitize_file_name};

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";

#[test]
fn the_type_comes_from_the_bytes() {
    let table: [(&[u8], &str, Option<&str>); 21] = [
        (PNG, "image/png", Some("png")),
        (b"\xff\xd8\xff\xe0\0\x10JFIF\0", "image/jpeg", Some("jpg")),
        (b"GIF89a\x01\0\x01\0\x80\0\0", "image/gif", Some("gif")),
        (b"RIFF\x1a\0\0\0WEBPVP8 ", "image/webp", Some("webp")),
        (b"%PDF-1.7\n1 0 obj", "application/pdf", Some("pdf")),
        (b"A PDF begins with %PDF-1.7", "text/plain", Some("txt")),
        (b"PK\x03\x04\x14\0\0\0\x08\0", "application/zip", Some("zip")),
        (b"hello", "text/plain", Some("txt")),
        ("日本".as_bytes(), "text/plain", Some("txt")),
        (b"\xe6\x97", "application/octet-stream", None),
        (b"a\xe6\x97", "text/plain", Some("txt")),
        (b"\0\x01\x02", "application/octet-stream", None),
        (b"\xff\xfe", "application/octet-stream", None),
        (b"\xff\xfeh\0\xe9\0", "text/plain", Some("txt")),
        (b"\xfe\xff\0h\0\xe9", "text/plain", Some("txt")),
        (b"\xff\xfeh\0\x3d\xd8", "text/plain", Some("txt")),
        (b"\xff\xfe\x3d\xd8h\0", "application/octet-stream", None),
        (b"\xff\xfe\x00\xdch\0", "application/octet-stream", None),
        (b"\xff\xfeh\0\x01\0", "application/octet-stream", None),
        (b"\xff\xfe\0\0h\0\0\0", "application/octet-stream", None),
        (b"h\0i\0", "application/octet-stream", None),
    ];
    for (bytes, content_type, extension) in table {
        assert_eq!(FileType::sniff(bytes, None), FileType { content_type, extension }, "{bytes:?}");
    }
}

/// The beginning of an archive with these files.
fn archive(names: &[&str]) -> Vec<u8> {
    let entry = |name: &&str| [b"PK\x03\x04".as_slice(), &[0; 26], name.as_bytes(), b"\x01packed"].concat();
    names.iter().flat_map(entry).collect()
}

#[test]
fn office_documents_are_recognised_in_any_entry_order() {
    const WORD: &str = "application/vnd.openxmlformats-officedocument.wordprocessingml.document";
    let types = "[Content_Types].xml";
    for names in [
        vec![types, "_rels/.rels", "word/document.xml", "word/_rels/document.xml.rels"],
        vec![types, "_rels/.rels", "docProps/core.xml", "docProps/app.xml", "word/document.xml"],
        vec!["_rels/.rels", "word/document.xml"],
        vec!["word/document.xml", types],
    ] {
        let kind = FileType::sniff(&archive(&names), None);
        assert_eq!(kind, FileType { content_type: WORD, extension: Some("docx") }, "{names:?}");
    }
    for (name, extension) in [("xl/workbook.xml", "xlsx"), ("ppt/presentation.xml", "pptx")] {
        assert_eq!(FileType::sniff(&archive(&[types, "_rels/.rels", name]), Some(WORD)).extension, Some(extension));
    }
    let late = archive(&[types, "customXml/item1.xml"]);
    assert_eq!(FileType::sniff(&late, Some(WORD)).content_type, WORD, "a sender may say more");
    assert_eq!(FileType::sniff(&late, None).content_type, "application/zip");
    for other in [archive(&["a.txt", "word/document.xml"]), archive(&["mimetype", "META-INF/container.xml"])] {
        assert_eq!(FileType::sniff(&other, Some(WORD)).content_type, "application/zip", "and not something else");
    }
}

#[test]
fn active_content_is_served_as_text() {
    let scripts: [&[u8]; 7] = [
        b"<!DOCTYPE html><script>alert(1)</script>",
        b"<html><body onload=alert(1)>",
        b"<svg xmlns=\"http://www.w3.org/2000/svg\" onload=\"alert(1)\"/>",
        b"<?xml version=\"1.0\"?><svg onload=\"alert(1)\"/>",
        b"GIF89a=1;alert(1)//",
        b"#!/bin/sh\nrm -rf /",
        b"BM is how this text begins, and MZ",
    ];
    for bytes in scripts {
        assert_eq!(
            FileType::sniff(bytes, Some("image/svg+xml")).content_type,
            "text/plain",
            "{}",
            String::from_utf8_lossy(bytes)
        );
        assert!(
            content_disposition("x", FileType::sniff(bytes, Some("text/html")).content_type)
                .starts_with("attachment; ")
        );
    }
}

#[test]
fn a_declared_type_refines_text_only() {
    for (declared, told) in [
        ("text/csv", "text/csv"),
        ("TEXT/Markdown; charset=utf-8", "text/markdown"),
        ("application/json", "application/json"),
        ("text/html", "text/plain"),
        ("image/png", "text/plain"),
        ("", "text/plain"),
    ] {
        assert_eq!(FileType::sniff(b"a,b\n1,2\n", Some(declared)).content_type, told, "{declared}");
        assert_eq!(FileType::sniff(PNG, Some(declared)).content_type, "image/png", "{declared}");
    }
}

#[test]
fn a_split_character_does_not_make_text_binary() {
    let text = "日".repeat(files::SNIFF_BYTES);
    assert_eq!(FileType::sniff(text.as_bytes(), None).content_type, "text/plain");
}

#[test]
fn a_file_name_keeps_printable_characters() {
    for (given, kept) in [
        ("report.pdf", "report.pdf"),
        ("../../etc/passwd", "passwd"),
        ("C:\\dir\\x.txt", "x.txt"),
        ("a\r\nSet-Cookie: x", "aSet-Cookie: x"),
        ("with \"quotes\" ü", "with \"quotes\" ü"),
        (" trailing. . ", "trailing"),
        ("", "file"),
        ("..", "file"),
        ("CON", "CON"),
        ("\u{202e}gpj.exe", "gpj.exe"),
    ] {
        assert_eq!(sanitize_file_name(given), kept, "{given:?}");
    }
    assert_eq!(sanitize_file_name(&"ü".repeat(150)), "ü".repeat(100));
}

#[test]
fn any_file_name_gives_one_header() {
    assert_eq!(
        content_disposition("a \"b\"\r\nX: 日.png", "image/png"),
        "inline; filename=\"a _b___X: _.png\"; filename*=UTF-8''a%20%22b%22%0D%0AX%3A%20%E6%97%A5.png"
    );
    assert!(content_disposition("x.svg", "image/svg+xml").starts_with("attachment; "));
    assert!(content_disposition("x.pdf", "application/pdf").starts_with("attachment; "));
}
