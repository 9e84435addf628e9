//! Limits on one request, for all protocols.

/// From the config's `[limits]`.
#[derive(Clone, Copy, Debug)]
pub struct InputLimits {
    /// Content parts of one message.
    pub parts_max: usize,
    /// Files of one input that are given by web URL: each is fetched before the model is called.
    pub web_files_max: usize,
    /// Client tools of one run.
    pub tools_max: usize,
    /// Threads of one user that are executed at a time. Of one thread only one run is.
    pub runs_per_user_max: usize,
}
