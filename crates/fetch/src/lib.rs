//! Fetches URLs from users and extracts what a model can read.
//!
//! URLs are untrusted, and so is everything behind them. [`url_guard`] decides which may be requested and pins the
//! connection to the addresses that it has checked; [`fetcher`] sends the request, within limits of size and time, and
//! [`guarded_request`] sends others, such as those of OAuth;
//! [`document_format`] detects the format from the bytes; [`document_text`] extracts the content. PDFs should be read
//! in a process of their own ([`pdf_process`]), because no limit inside a process holds against every file.
//!
//! This crate knows no runs, threads or users. The fetcher sends no credentials; a guarded request has what its caller gives
//! it, and goes to the checked addresses and nowhere else.

mod body_decoder;
pub mod document_format;
pub mod document_text;
mod error;
pub mod fetcher;
pub mod global_ip;
pub mod guarded_request;
mod own_address;
mod pdf;
pub mod pdf_process;
mod plain_text;
pub mod url_guard;

pub use document_format::DocumentFormat;
pub use document_text::{DocumentContent, DocumentReader, PdfReader, ReadLimits};
pub use error::FetchError;
pub use fetcher::{FetchLimits, FetchedFile, Fetcher};
pub use guarded_request::{GuardedClient, GuardedMethod, GuardedRequest, GuardedResponse};
pub use own_address::OwnAddress;
pub use plain_text::ExtractedText;
pub use url_guard::{PrivateAddresses, Resolver, UrlGuard, UrlRules};
