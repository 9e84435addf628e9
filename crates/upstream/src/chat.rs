//! Chat Completions: OpenAI and every service that claims compatibility (Ollama, vLLM, llama.cpp, LM Studio, OpenRouter,
//! DeepSeek, Groq, Mistral, Gemini, Azure).
//!
//! - `ingest` reads a stream, and `delta_chunk` its most frequent chunks. They belong to one message and have no items;
//!   `reasoning`, `message_builder` and `tool_calls` make items of them, each with a slot from `slot_counter`.
//! - `request` builds a body that the strictest service accepts.
//! - `refusal` classifies errors.
//!
//! The services differ, and `ingest` accepts all of these:
//!
//! - Reasoning is in `reasoning_content`, `reasoning`, `reasoning_details`, or `thinking` parts of the content.
//! - Content is a string, `null`, or an array of parts. `<think>` tags in it are text.
//! - A call comes in deltas or complete; with an `index`, without, or with the same one for all calls; with its id once, in
//!   every delta, or a different id in every delta; with its name once, repeated, or in fragments. Its arguments are a
//!   string, an object, or `null`, and may precede its name. `function_call` is a call, too.
//! - The stream ends with `[DONE]` or after a `finish_reason`; either is enough, unless the reason is `error`, or arguments
//!   are incomplete and there was no reason. Every chunk may have one: the last counts. `stop` with calls means the calls.
//! - Usage is in a chunk without choices, in every chunk, in a choice, or in `x_groq`. Some services do not count
//!   reasoning in `completion_tokens`.
//! - An error is an event of a successful response: at the top level, in a choice, flat, or a bare string.
//! - A chunk may have a complete `message` instead of a `delta`, or no choice at all. Choices after the first are
//!   `Unknown`, and so is audio.

mod classify_error;
mod delta_chunk;
mod ingest;
mod message_builder;
mod reasoning;
mod request;
mod settings;
mod slot_counter;
mod tool_calls;
mod usage;

pub use classify_error::classify_error;
#[cfg(test)]
pub(crate) use ingest::ChatIngest;
pub use ingest::new_ingest;
pub use request::{build_request, unwritten_entries, without_reasoning, write_request};
