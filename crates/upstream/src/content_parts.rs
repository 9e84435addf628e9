//! Content parts as every dialect needs to inspect them.

use model::content::{ContentPart, FileRef};

/// Where the bytes of an image or a file are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ImageSource<'a> {
    /// The provider can fetch this URL.
    Remote(&'a str),
    /// A `data:` URL.
    Inline { url: &'a str, media_type: &'a str, base64: &'a str },
    /// The provider cannot reach it.
    Unavailable,
}

impl<'a> ImageSource<'a> {
    pub(crate) fn from_url(url: &'a str) -> Self {
        if url.starts_with("https://") || url.starts_with("http://") {
            return Self::Remote(url);
        }
        let data = url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
        match data {
            Some((media_type, base64)) if !media_type.is_empty() && !base64.is_empty() => {
                // Drop the parameters of the media type.
                let media_type = media_type.split(';').next().unwrap_or(media_type);
                Self::Inline { url, media_type, base64 }
            }
            _ => Self::Unavailable,
        }
    }
}

pub(crate) fn is_blank_part(part: &ContentPart) -> bool {
    match part {
        ContentPart::Text { text, .. } => text.trim().is_empty(),
        ContentPart::ImageUrl { image_url, .. } => image_url.url.is_empty(),
        ContentPart::File { file } => *file == FileRef::default(),
    }
}

pub(crate) fn file_name_or_default(file: &FileRef) -> &str {
    file.display_name().unwrap_or("file")
}

/// Text in place of a file that the provider cannot read. A `data:` URL is no name.
pub(crate) fn file_placeholder(file: &FileRef) -> String {
    let name = file.name.as_deref().filter(|name| !name.is_empty());
    let url = file.url.as_deref().filter(|url| !url.starts_with("data:"));
    match (name.or(url), &file.bucket, &file.path) {
        (Some(name), _, _) => format!("[file {name}]"),
        (None, Some(bucket), Some(path)) => format!("[file {bucket}/{path}]"),
        (None, bucket, path) => match path.as_ref().or(bucket.as_ref()) {
            Some(name) => format!("[file {name}]"),
            None => "[file]".to_owned(),
        },
    }
}

pub(crate) fn summary_text(text: &str) -> String {
    format!("Summary of the conversation so far:\n\n{text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_a_url_inline_data_or_omitted() {
        assert_eq!(ImageSource::from_url("https://x/y.png"), ImageSource::Remote("https://x/y.png"));
        let url = "data:image/png;charset=x;base64,AAAA";
        assert_eq!(ImageSource::from_url(url), ImageSource::Inline { url, media_type: "image/png", base64: "AAAA" });
        for url in ["", "/v1/blobs/abc", "data:", "data:image/png,raw", "data:;base64,AA", "ftp://x"] {
            assert_eq!(ImageSource::from_url(url), ImageSource::Unavailable, "{url}");
        }
    }

    #[test]
    fn a_file_is_named_by_its_name_then_its_path_and_never_its_data() {
        let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let file = |name, url, path| FileRef {
            name: text(name),
            url: text(url),
            path: text(path),
            bucket: text("b"),
            size: None,
        };
        for (file, name, note) in [
            (file("a.pdf", "data:application/pdf;base64,AA", "x/y.pdf"), "a.pdf", "[file a.pdf]"),
            (file("", "data:application/pdf;base64,AA", "x/y.pdf"), "y.pdf", "[file b/x/y.pdf]"),
            (file("", "https://x/z", ""), "file", "[file https://x/z]"),
            (file("", "", "x/"), "file", "[file b/x/]"),
            (FileRef { url: text("data:text/plain;base64,AA"), ..FileRef::default() }, "file", "[file]"),
        ] {
            assert_eq!((file_name_or_default(&file), file_placeholder(&file).as_str()), (name, note));
        }
    }
}
