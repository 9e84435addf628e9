//! The bytes that users send: where they are kept, under which names, and what they are.
//!
//! - [`Place`] is where an operator wants them: a folder, or a bucket of S3, Google or Azure.
//! - [`Depot`] is that place, opened: an [`Upload`] into it, a read out of it, an address that the place itself signs.
//! - [`Key`] is a name in it. It is made here and nowhere else; what a client sends is held against how ours look.
//! - [`Kind`] is what bytes are, by the bytes; [`disposition`] is how a browser is told to treat them. [`Picture`] is what
//!   they say how large they would become. [`Seal`] signs addresses where the place cannot.
//!
//! Invariant: which bytes count is not known here but in the rows of `model::ports::Attachments`, which come first and
//! last. Invariant: an upload holds two parts in memory at most; a whole file is read only by whoever says how large it may
//! be ([`Depot::bytes`]). Nobody here looks at a clock.

mod file_key;
mod file_name;
mod file_store;
mod file_type;
mod image_header;
mod list_folder;
mod object_http;
mod open;
mod storage_location;
mod upload;
mod url_signer;

pub use file_key::{FileKey, FileKeyError};
pub use file_name::{content_disposition, parse_disposition_file_name, sanitize_file_name};
pub use file_store::{FileStore, FileStoreError, FileStream};
pub use file_type::{FileType, SNIFF_BYTES};
pub use image_header::{ImageHeaderScanner, ImageTooLarge};
pub use list_folder::{ListedFile, ListedFileKind};
pub use open::FileStoreOpenError;
pub use storage_location::{CloudProvider, StorageLocation, StorageLocationError};
pub use upload::{Upload, UploadError};
pub use url_signer::{UrlSigner, UrlSignerError};
