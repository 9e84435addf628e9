//! What people point at: an address is fetched, and turned into what a model can read.
//!
//! The address is somebody else's words, and so is everything behind it. [`guard`] decides whether it may be asked at all
//! and pins the connection to the addresses that it looked at; [`fetch`] asks, within limits of size and time; [`kind`]
//! looks at the bytes instead of believing what was said about them; [`text`] reads them. PDFs are best read in a process
//! of their own ([`apart`]), because no limit inside a process holds against every file.
//!
//! Nothing in here knows runs, threads or users, and no request that it sends carries a credential.

pub mod address;
pub mod apart;
mod body;
mod error;
pub mod fetch;
pub mod guard;
pub mod kind;
mod own;
pub mod text;

pub use error::FetchError;
pub use fetch::{Fetched, Fetcher, Limits};
pub use guard::{Guard, Private, Resolver, Rules};
pub use kind::Kind;
pub use own::Own;
pub use text::{PdfReader, ReadLimits, Readable, Reader};
