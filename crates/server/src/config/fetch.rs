//! `[fetch]`: limits of the files that the server fetches from the web.

use super::table::{ConfigTable, ConfigValue, quote_text};
use ::fetch::{FetchLimits, PrivateAddresses, ReadLimits};
use std::net::IpAddr;
use std::time::Duration;

pub(super) const KEYS: [&str; 7] =
    ["allow_private", "ports", "bytes_max", "timeout_ms", "redirects_max", "text_bytes_max", "at_once_max"];
const PORTS: [u16; 2] = [80, 443];
const TIMEOUT_MS_MAX: u64 = 600_000;
/// What reads PDFs takes no more.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;
const TEXT_BYTES_MAX: u64 = 16 * 1024 * 1024;
const REDIRECTS_MAX: u64 = 20;
const CONCURRENT_DEFAULT: usize = 16;
const CONCURRENT_MAX: u64 = 1024;

/// The files that people point at, and how far the server goes to read one.
#[derive(Clone, Debug)]
pub(crate) struct FetchConfig {
    /// What of this machine and its networks may be asked.
    pub(crate) private_networks: PrivateAddresses,
    /// The ports that may be asked. None: nothing is fetched.
    pub(crate) ports: Vec<u16>,
    /// How much and how long.
    pub(crate) limits: FetchLimits,
    /// Of the text of one file.
    pub(crate) text_bytes_max: usize,
    /// How many files are fetched and read at the same time.
    pub(crate) concurrent_max: usize,
}

pub(super) fn read_fetch(table: &ConfigTable<'_>) -> FetchConfig {
    let base = FetchLimits::default();
    let size =
        |key, most, base| table.number(key, 1..=most).and_then(|size| usize::try_from(size).ok()).unwrap_or(base);
    let redirects = table.number("redirects_max", 0..=REDIRECTS_MAX).and_then(|most| u32::try_from(most).ok());
    let total = table.number("timeout_ms", 1..=TIMEOUT_MS_MAX).map_or(base.total_timeout, Duration::from_millis);
    FetchConfig {
        private_networks: table.get("allow_private").map(|item| read_private_networks(&item)).unwrap_or_default(),
        ports: table.get("ports").and_then(|item| read_ports(&item)).unwrap_or_else(|| PORTS.to_vec()),
        limits: FetchLimits {
            bytes_max: size("bytes_max", FILE_BYTES_MAX, base.bytes_max),
            redirects_max: redirects.unwrap_or(base.redirects_max),
            connect_timeout: total / 3,
            first_byte_timeout: total * 2 / 3,
            idle_timeout: total / 3,
            total_timeout: total,
        },
        text_bytes_max: size("text_bytes_max", TEXT_BYTES_MAX, ReadLimits::default().text_bytes_max),
        concurrent_max: size("at_once_max", CONCURRENT_MAX, CONCURRENT_DEFAULT),
    }
}

fn read_private_networks(item: &ConfigValue<'_>) -> PrivateAddresses {
    if !item.is_list() {
        return if item.flag().unwrap_or_default() { PrivateAddresses::AllowAll } else { PrivateAddresses::Deny };
    }
    let address = |(item, text): (ConfigValue<'_>, &str)| {
        let address = text.parse::<IpAddr>();
        if address.is_err() {
            item.report_error(format!("{} is not an IP address such as 10.0.0.5", quote_text(text)));
        }
        address.ok()
    };
    PrivateAddresses::AllowListed(item.text_list().unwrap_or_default().into_iter().filter_map(address).collect())
}

fn read_ports(item: &ConfigValue<'_>) -> Option<Vec<u16>> {
    let port = |item: ConfigValue<'_>| item.number(1..=u64::from(u16::MAX)).and_then(|port| u16::try_from(port).ok());
    Some(item.list()?.into_iter().filter_map(port).collect())
}
