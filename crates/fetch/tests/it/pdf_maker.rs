//! Builds PDFs: valid ones, large ones, and bombs.

use flate2::Compression;
use flate2::write::ZlibEncoder;
use std::io::Write;

/// A file under construction. Objects are numbered from 1 in the order in which they are added.
pub(crate) struct Maker {
    out: Vec<u8>,
    places: Vec<usize>,
}

impl Maker {
    pub(crate) fn new() -> Self {
        Self { out: b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n".to_vec(), places: Vec::new() }
    }

    /// The number that the next object gets.
    pub(crate) fn next(&self) -> usize {
        self.places.len() + 1
    }

    pub(crate) fn object(&mut self, body: impl AsRef<[u8]>) -> usize {
        let number = self.next();
        self.places.push(self.out.len());
        self.out.extend(format!("{number} 0 obj\n").as_bytes());
        self.out.extend(body.as_ref());
        self.out.extend(b"\nendobj\n");
        number
    }

    pub(crate) fn stream(&mut self, entries: &str, bytes: &[u8]) -> usize {
        let mut body = format!("<< {entries} /Length {} >>\nstream\n", bytes.len()).into_bytes();
        body.extend(bytes);
        body.extend(b"\nendstream");
        self.object(body)
    }

    pub(crate) fn packed(&mut self, entries: &str, bytes: &[u8]) -> usize {
        self.stream(&format!("{entries} /Filter /FlateDecode"), &packed(bytes))
    }

    /// An incompressible image of this many bytes: what makes most large documents large.
    pub(crate) fn picture(&mut self, bytes: usize) -> usize {
        let mut noise = 0x2545_f491_u32;
        let noise = |_| {
            noise ^= noise << 13;
            noise ^= noise >> 17;
            noise ^= noise << 5;
            noise.to_le_bytes()
        };
        let picture: Vec<u8> = (0..bytes / 4).flat_map(noise).collect();
        let about = "/Type /XObject /Subtype /Image /Width 1 /Height 1 /ColorSpace /DeviceGray /BitsPerComponent 8";
        self.stream(about, &picture)
    }

    /// The complete file. `root` is the number of the catalogue.
    pub(crate) fn finish(mut self, root: usize, more: &str) -> Vec<u8> {
        let start = self.out.len();
        let count = self.places.len() + 1;
        self.out.extend(format!("xref\n0 {count}\n0000000000 65535 f \n").as_bytes());
        for place in &self.places {
            self.out.extend(format!("{place:010} 00000 n \n").as_bytes());
        }
        let trailer = format!("trailer\n<< /Size {count} /Root {root} 0 R {more} >>\nstartxref\n{start}\n%%EOF\n");
        self.out.extend(trailer.as_bytes());
        self.out
    }

    /// The complete file, with one page for each of these streams.
    pub(crate) fn with_pages(mut self, font: usize, contents: &[usize], resources: &str) -> Vec<u8> {
        let tree = self.next() + contents.len();
        let pages: Vec<usize> = contents
            .iter()
            .map(|content| {
                let resources = format!("<< /Font << /F1 {font} 0 R >> {resources} >>");
                self.object(format!(
                    "<< /Type /Page /Parent {tree} 0 R /MediaBox [0 0 612 792] /Resources {resources} /Contents {content} 0 R >>"
                ))
            })
            .collect();
        let kids: String = pages.iter().map(|page| format!("{page} 0 R ")).collect();
        self.object(format!("<< /Type /Pages /Count {} /Kids [{kids}] >>", pages.len()));
        let root = self.object(format!("<< /Type /Catalog /Pages {tree} 0 R >>"));
        self.finish(root, "")
    }
}

pub(crate) const HELVETICA: &str = "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>";

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

/// A content stream that shows these lines below one another.
pub(crate) fn lines(lines: &[&str]) -> Vec<u8> {
    let mut content = b"BT /F1 12 Tf 72 720 Td 14 TL\n".to_vec();
    for line in lines {
        content.extend(format!("({line}) Tj T*\n").as_bytes());
    }
    content.extend(b"ET");
    content
}

/// A document with one page for each of these texts.
pub(crate) fn document(pages: &[&[&str]]) -> Vec<u8> {
    let mut maker = Maker::new();
    let font = maker.object(HELVETICA);
    let contents: Vec<usize> = pages.iter().map(|page| maker.packed("", &lines(page))).collect();
    maker.with_pages(font, &contents, "")
}

/// A document of few bytes that takes forever: lists in compressed streams, each decompressed and parsed again.
pub(crate) fn endless() -> Vec<u8> {
    let mut list = b"1 0 [".to_vec();
    list.extend(b"0 ".repeat(4 * 1024 * 1024));
    list.push(b']');
    let list = packed(&list);
    let mut maker = Maker::new();
    for _ in 0..200 {
        maker.stream("/Type /ObjStm /N 1 /First 4 /Filter /FlateDecode", &list);
    }
    let font = maker.object(HELVETICA);
    let content = maker.packed("", &lines(&["text"]));
    maker.with_pages(font, &[content], "")
}
