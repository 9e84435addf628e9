//! What people point at: an address is fetched, and turned into what a model can read.
//!
//! The address is somebody else's words, and so is everything behind it. [`guard`] decides whether it may be asked at all
//! and pins the connection to the addresses that it looked at; [`fetch`] asks, within limits of size and time; [`kind`]
//! looks at the bytes instead of believing what was said about them; [`text`] reads them. PDFs are best read in a process
//! of their own ([`apart`]), because no limit inside a process holds against every file.
//!
//! Nothing in here knows runs, threads or users, and no request that it sends carries a credential.

mod body_decoder;
pub mod document_format;
pub mod document_text;
mod error;
pub mod fetcher;
pub mod global_ip;
mod own_address;
pub mod pdf_process;
pub mod url_guard;

pub use document_format::DocumentFormat;
pub use document_text::{DocumentContent, DocumentReader, PdfReader, ReadLimits};
pub use error::FetchError;
pub use fetcher::{FetchLimits, FetchedFile, Fetcher};
pub use own_address::OwnAddress;
pub use url_guard::{PrivateAddresses, Resolver, UrlGuard, UrlRules};
