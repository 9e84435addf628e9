//! `data:` URLs. Parsing is strict: base64 in its canonical form, without line breaks.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum DataUrlError {
    #[error("a data: URL is written `data:{{type}};base64,{{bytes}}`")]
    Malformed,
    #[error("what follows `base64,` is not base64: write it with its padding, without spaces and line breaks")]
    InvalidBase64,
    #[error("there is nothing in it")]
    Empty,
}

pub(crate) fn is_data_url(url: &str) -> bool {
    url.starts_with("data:")
}

/// Returns the declared media type and the bytes.
pub(crate) fn parse_data_url(url: &str) -> Result<(String, Bytes), DataUrlError> {
    let (declared, base64) =
        url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,")).ok_or(DataUrlError::Malformed)?;
    let bytes = STANDARD.decode(base64).map_err(|_| DataUrlError::InvalidBase64)?;
    if bytes.is_empty() {
        return Err(DataUrlError::Empty);
    }
    let declared = declared.split(';').next().unwrap_or(declared).to_ascii_lowercase();
    Ok((declared, Bytes::from(bytes)))
}

pub(crate) fn format_data_url(content_type: &str, bytes: &[u8]) -> String {
    format!("data:{content_type};base64,{}", STANDARD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formatting_and_strict_parsing_agree() {
        let url = format_data_url("image/png", b"\x89PNG");
        assert_eq!(parse_data_url(&url), Ok(("image/png".to_owned(), Bytes::from_static(b"\x89PNG"))));
        assert_eq!(
            parse_data_url("data:Text/Plain;charset=utf-8;base64,YQ=="),
            Ok(("text/plain".to_owned(), Bytes::from_static(b"a")))
        );
        for (url, error) in [
            ("https://x/y", DataUrlError::Malformed),
            ("data:image/png,raw", DataUrlError::Malformed),
            ("data:image/png;base64,", DataUrlError::Empty),
            ("data:image/png;base64,YQ", DataUrlError::InvalidBase64),
            ("data:image/png;base64,Y Q==", DataUrlError::InvalidBase64),
            ("data:image/png;base64,YQ==\n", DataUrlError::InvalidBase64),
            ("data:image/png;base64,YR==", DataUrlError::InvalidBase64),
            ("data:image/png;base64,é", DataUrlError::InvalidBase64),
        ] {
            assert_eq!(parse_data_url(url), Err(error), "{url}");
        }
    }
}
