//! Storage of the files that users send: where they are kept, under which keys, and what type they have.
//!
//! - [`StorageLocation`] is where the operator keeps them: a folder, or a bucket of S3, Google or Azure.
//! - [`FileStore`] is that location, opened: uploads, reads, and URLs that the bucket signs itself.
//! - [`ArchiveStore`] is another such location, for the records that have left a database.
//! - [`FileKey`] is a file's key. Keys are made here only; a key from a client is checked against the format of ours.
//! - [`FileType`] is the type of a file by its bytes; [`content_disposition`] tells a browser how to treat it.
//! - [`ImageHeaderScanner`] reads the size that an image would decode to. [`UrlSigner`] signs URLs of local files.
//!
//! Invariants: the rows of `model::ports::Attachments` decide which files exist, not this crate. An upload holds at
//! most two parts in memory; a whole file is only read up to a size that the caller chooses ([`FileStore::read_all`]).
//! No clock.

mod archive_store;
mod error;
mod file_key;
mod file_name;
mod file_store;
mod file_type;
mod folder_id;
mod image_header;
mod list_folder;
mod object_http;
mod open;
mod storage_location;
mod upload;
mod url_signer;

pub use archive_store::ArchiveStore;
pub use error::{FileStoreError, FileStoreOpenError, UploadError};
pub use file_key::{FileKey, FileKeyError};
pub use file_name::{content_disposition, parse_disposition_file_name, sanitize_file_name};
pub use file_store::{FileStore, FileStream};
pub use file_type::{FileType, SNIFF_BYTES};
pub use folder_id::{read_folder_id, read_or_create_folder_id};
pub use image_header::{ImageHeaderScanner, ImageTooLarge};
pub use list_folder::{ListedFile, ListedFileKind};
pub use storage_location::{CloudProvider, StorageLocation, StorageLocationError};
pub use upload::Upload;
pub use url_signer::{UrlSigner, UrlSignerError};
