//! What people and tools give a model to read, as far as every provider needs to look at it.

use model::content::{ContentPart, FileRef};

/// Where a picture is, as a provider needs to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ImageSource<'a> {
    /// The provider can fetch it.
    Remote(&'a str),
    /// It is in the address itself.
    Inline {
        /// The whole `data:` URL.
        url: &'a str,
        /// What it is, such as `image/png`.
        media_type: &'a str,
        /// Its bytes in base64.
        base64: &'a str,
    },
    /// Nobody outside can see it.
    Unavailable,
}

impl<'a> ImageSource<'a> {
    /// Looks at an address.
    pub(crate) fn from_url(url: &'a str) -> Self {
        if url.starts_with("https://") || url.starts_with("http://") {
            return Self::Remote(url);
        }
        let data = url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
        match data {
            Some((media_type, base64)) if !media_type.is_empty() && !base64.is_empty() => {
                // What stands behind the first semicolon are parameters of the type.
                let media_type = media_type.split(';').next().unwrap_or(media_type);
                Self::Inline { url, media_type, base64 }
            }
            _ => Self::Unavailable,
        }
    }
}

/// Is there anything to read in it?
pub(crate) fn is_blank_part(part: &ContentPart) -> bool {
    match part {
        ContentPart::Text { text, .. } => text.trim().is_empty(),
        ContentPart::ImageUrl { image_url, .. } => image_url.url.is_empty(),
        ContentPart::File { file } => *file == FileRef::default(),
    }
}

/// What a file is called where a name is needed.
pub(crate) fn file_name_or_default(file: &FileRef) -> &str {
    file.display_name().unwrap_or("file")
}

/// How a file is named where it cannot be shown. Its bytes are no name.
pub(crate) fn file_placeholder(file: &FileRef) -> String {
    let name = file.name.as_deref().filter(|name| !name.is_empty());
    let address = file.url.as_deref().filter(|url| !url.starts_with("data:"));
    match (name.or(address), &file.bucket, &file.path) {
        (Some(name), _, _) => format!("[file {name}]"),
        (None, Some(bucket), Some(path)) => format!("[file {bucket}/{path}]"),
        (None, bucket, path) => match path.as_ref().or(bucket.as_ref()) {
            Some(name) => format!("[file {name}]"),
            None => "[file]".to_owned(),
        },
    }
}

/// How a summary is introduced to a model.
pub(crate) fn summary_text(text: &str) -> String {
    format!("Summary of the conversation so far:\n\n{text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_is_fetched_or_carried_or_hidden() {
        assert_eq!(ImageSource::from_url("https://x/y.png"), ImageSource::Remote("https://x/y.png"));
        let url = "data:image/png;charset=x;base64,AAAA";
        assert_eq!(ImageSource::from_url(url), ImageSource::Inline { url, media_type: "image/png", base64: "AAAA" });
        for url in ["", "/v1/blobs/abc", "data:", "data:image/png,raw", "data:;base64,AA", "ftp://x"] {
            assert_eq!(ImageSource::from_url(url), ImageSource::Unavailable, "{url}");
        }
    }

    #[test]
    fn a_file_is_called_by_its_name_then_by_its_path_and_never_by_its_bytes() {
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
