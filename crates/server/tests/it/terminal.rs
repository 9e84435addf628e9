//! A terminal for a program: what it shows is read, and keys are typed into it.

use crate::harness::{TEST_TIMEOUT, headwater_command};
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

pub(crate) struct Terminal {
    child: Child,
    keys: File,
    output: Receiver<Vec<u8>>,
    /// What has been shown and not been waited for.
    unread: String,
    shown: String,
}

impl Terminal {
    /// Runs `headwater` in a terminal of its own. `setsid --ctty` makes Ctrl-C a signal for it.
    pub(crate) fn run(dir: &Path, args: &[&str]) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let open = || {
            let flags = OFlags::RDWR | OFlags::NOCTTY;
            Stdio::from(rustix::fs::open(name.as_c_str(), flags, Mode::empty()).unwrap())
        };
        let wanted = headwater_command(dir);
        let mut command = Command::new("setsid");
        command.arg("--ctty").arg(wanted.get_program()).args(args).current_dir(dir);
        for (name, value) in wanted.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let child = command.env("NO_COLOR", "1").stdin(open()).stdout(open()).stderr(open()).spawn().unwrap();
        let keys = File::from(master);
        let (sender, output) = channel();
        let mut reader = keys.try_clone().unwrap();
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            // The end of the program is an error of the terminal.
            while let Ok(count @ 1..) = reader.read(&mut piece) {
                if sender.send(piece[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        Self { child, keys, output, unread: String::new(), shown: String::new() }
    }

    pub(crate) fn type_keys(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until this is shown, and returns what was shown before it since the last call.
    pub(crate) fn wait_for(&mut self, wanted: &str) -> String {
        let began = Instant::now();
        loop {
            if let Some((before, after)) = self.unread.split_once(wanted) {
                let (before, after) = (before.to_owned(), after.to_owned());
                self.unread = after;
                return before;
            }
            let left = TEST_TIMEOUT.saturating_sub(began.elapsed());
            let Ok(piece) = self.output.recv_timeout(left) else {
                panic!("`{wanted}` is not shown:\n{}", self.shown);
            };
            let text = String::from_utf8_lossy(&piece).replace('\r', "");
            self.shown.push_str(&text);
            self.unread.push_str(&text);
        }
    }

    pub(crate) fn wait_exit(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}
