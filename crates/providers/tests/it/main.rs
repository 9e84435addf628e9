//! The providers as the engine sees them.

#[cfg(test)]
mod cases;
#[cfg(test)]
mod demo;
#[cfg(test)]
mod docs;
#[cfg(test)]
mod matching;
#[cfg(test)]
mod pacing;
#[cfg(test)]
mod router;
#[cfg(test)]
mod scenario_errors;
#[cfg(test)]
mod steps;
#[cfg(test)]
mod upstream;
#[cfg(test)]
mod vocabulary;
