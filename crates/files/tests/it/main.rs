//! The file store over real folders.

#![cfg(test)]

mod archive_store;
mod corpus;
mod file_store;
mod file_types;
mod form_file_names;
mod image_headers;
mod keys;
mod storage_locations;
mod url_signing;
