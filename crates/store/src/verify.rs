//! stub
/// stub
pub struct Report;
/// stub
pub fn verify() {}
