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

mod depot;
mod key;
mod kind;
mod line;
mod naming;
mod open;
mod picture;
mod place;
mod seal;
mod upload;
mod walk;

pub use depot::{Depot, FilesError, Reading};
pub use key::{Key, KeyError};
pub use kind::{HEAD_BYTES, Kind};
pub use naming::{disposition, sent_name, shown_name};
pub use open::OpenError;
pub use picture::{Picture, TooManyPixels};
pub use place::{Cloud, Place, PlaceError};
pub use seal::{Seal, SealError};
pub use upload::{Upload, UploadError};
pub use walk::{Found, What};
