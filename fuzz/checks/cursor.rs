//! The check of the fuzz target `cursor`: whatever a client sends as its position, it is refused, or means one position.

use model::cursor::{Cursor, CursorError};

pub(crate) fn a_cursor_means_one_position(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match text.parse::<Cursor>() {
        Ok(cursor) => {
            let printed = cursor.to_string();
            assert_eq!(printed.parse(), Ok(cursor), "{text:?} prints as {printed:?}");
            // A header and a line of an event stream can carry it.
            assert!(printed.bytes().all(|byte| byte.is_ascii_graphic()), "{printed:?}");
        }
        Err(error) => {
            assert!(matches!(error, CursorError::Malformed(_)), "{error:?}");
            let message = error.to_string();
            assert!(message.len() < 512 && !message.chars().any(char::is_control), "{message:?}");
        }
    }
}
