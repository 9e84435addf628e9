//! Arguments of the subcommands that are clients of a server.

use clap::Args;
use client::{ApiClient, ApiClientError, Palette};
use std::io::IsTerminal as _;

#[derive(Args)]
pub(crate) struct ServerArgs {
    /// The server's URL.
    #[arg(long, env = "HEADWATER_URL", default_value = "http://127.0.0.1:8787")]
    url: String,
    /// The API key, if the server requires one.
    #[arg(long, env = "HEADWATER_KEY", hide_env_values = true)]
    key: Option<String>,
}

impl ServerArgs {
    pub(super) fn client(&self) -> Result<ApiClient, ApiClientError> {
        ApiClient::new(&self.url, self.key.as_deref())
    }
}

impl std::fmt::Debug for ServerArgs {
    /// Omits the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerArgs").field("url", &self.url).finish_non_exhaustive()
    }
}

#[derive(Debug, Args)]
pub(crate) struct ColorArgs {
    /// Print no colours. That is the default if the output is not a terminal.
    #[arg(long, env = "NO_COLOR", num_args = 0..=1, require_equals = true, default_missing_value = "1", value_name = "ANY")]
    no_color: Option<String>,
}

impl ColorArgs {
    pub(super) fn palette(&self) -> Palette {
        let has_colors = self.no_color.as_ref().is_none_or(String::is_empty) && std::io::stdout().is_terminal();
        if has_colors { Palette::Colors } else { Palette::Plain }
    }
}
