//! `data:` URLs: bytes that come in an address. Strictly read: base64 in one way of writing, without line breaks.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

/// Why an address holds no bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DataError {
    #[error("a data: URL is written `data:{{type}};base64,{{bytes}}`")]
    Shape,
    #[error("what follows `base64,` is not base64: write it with its padding, without spaces and line breaks")]
    Base64,
    #[error("there is nothing in it")]
    Empty,
}

/// Does an address hold bytes?
pub(crate) fn is_data(url: &str) -> bool {
    url.starts_with("data:")
}

/// What a `data:` URL says that it is, and its bytes.
pub(crate) fn read(url: &str) -> Result<(String, Bytes), DataError> {
    let (declared, base64) =
        url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,")).ok_or(DataError::Shape)?;
    let bytes = STANDARD.decode(base64).map_err(|_| DataError::Base64)?;
    if bytes.is_empty() {
        return Err(DataError::Empty);
    }
    let declared = declared.split(';').next().unwrap_or(declared).to_ascii_lowercase();
    Ok((declared, Bytes::from(bytes)))
}

/// Bytes as an address.
pub(crate) fn write(content_type: &str, bytes: &[u8]) -> String {
    format!("data:{content_type};base64,{}", STANDARD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        let url = write("image/png", b"\x89PNG");
        assert_eq!(read(&url), Ok(("image/png".to_owned(), Bytes::from_static(b"\x89PNG"))));
        assert_eq!(
            read("data:Text/Plain;charset=utf-8;base64,YQ=="),
            Ok(("text/plain".to_owned(), Bytes::from_static(b"a")))
        );
        for (url, error) in [
            ("https://x/y", DataError::Shape),
            ("data:image/png,raw", DataError::Shape),
            ("data:image/png;base64,", DataError::Empty),
            ("data:image/png;base64,YQ", DataError::Base64),
            ("data:image/png;base64,Y Q==", DataError::Base64),
            ("data:image/png;base64,YQ==\n", DataError::Base64),
            ("data:image/png;base64,YR==", DataError::Base64),
            ("data:image/png;base64,é", DataError::Base64),
        ] {
            assert_eq!(read(url), Err(error), "{url}");
        }
    }
}
