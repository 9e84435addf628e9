//! Small files that are much work to read.

use super::hostile_requests::RepeatedRequest;
use super::{Attack, AttackContext, AttackOutcome, SiegeForm};
use anyhow::Context;
use async_trait::async_trait;
use bytes::Bytes;
use hyper::Method;
use serde_json::{Value, json};
use std::fmt::Write;
use std::time::Duration;

const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
const PAGES: usize = 2_000;
const NESTED: usize = 100_000;

pub(super) struct HeavyFiles;

#[async_trait]
impl Attack for HeavyFiles {
    fn name(&self) -> &'static str {
        "heavy-files"
    }

    fn describe(&self, _form: SiegeForm) -> String {
        "Has a PDF of 2,000 pages with one shared page of 256 KiB, and HTML nested 100,000 deep, read from 4 clients \
         each."
            .to_owned()
    }

    async fn run(&self, context: &AttackContext) -> anyhow::Result<AttackOutcome> {
        let mut outcome = AttackOutcome::default();
        let user = &context.installation.attacker;
        let html = format!("<!doctype html><body>{}text", "<div><b>".repeat(NESTED));
        for (name, bytes) in [("heavy.pdf", heavy_pdf()), ("heavy.html", html.into_bytes())] {
            let path = format!("/api/v1/agent/attachments?name={name}");
            let file = user.send(Method::POST, &path, Bytes::from(bytes), REQUEST_TIMEOUT).await?;
            let file = file.expect_status(201)?.json()?;
            let member = |name: &str| file.get(name).and_then(Value::as_str).context("no such member");
            let path =
                format!("/api/v1/agent/attachments/signed-url?bucket={}&path={}", member("bucket")?, member("path")?);
            let signed = user.get(&path, REQUEST_TIMEOUT).await?.expect_status(200)?.json()?;
            let url = signed.get("url").cloned().context("no URL")?;
            let input = json!([{"type": "text", "text": "story 1"}, {"type": "file", "file": {"url": url}}]);
            let body = json!({"model": "writer", "input": input, "wait": true});
            RepeatedRequest::post(user, "/v1/tasks", &body).repeat(context, &mut outcome, 4);
        }
        context.hold().await;
        Ok(outcome)
    }
}

/// A PDF whose pages share one content stream, so that its text is many times as long as the file.
fn heavy_pdf() -> Vec<u8> {
    let content = "BT /F1 9 Tf (heavy) Tj ET\n".repeat(10_000);
    let kids: Vec<String> = (0..PAGES).map(|page| format!("{} 0 R", page + 5)).collect();
    let mut objects = vec![
        "<< /Type /Catalog /Pages 2 0 R >>".to_owned(),
        format!("<< /Type /Pages /Count {PAGES} /Kids [{}] >>", kids.join(" ")),
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>".to_owned(),
        format!("<< /Length {} >>\nstream\n{content}endstream", content.len()),
    ];
    let page =
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 99 99] /Contents 4 0 R /Resources << /Font << /F1 3 0 R >> >> >>";
    objects.extend(std::iter::repeat_n(page.to_owned(), PAGES));
    let mut text = "%PDF-1.4\n".to_owned();
    let mut places = Vec::new();
    for (object, number) in objects.iter().zip(1..) {
        places.push(text.len());
        let _ = write!(text, "{number} 0 obj\n{object}\nendobj\n");
    }
    let table = text.len();
    let _ = write!(text, "xref\n0 {}\n0000000000 65535 f \n", objects.len() + 1);
    for place in &places {
        let _ = writeln!(text, "{place:010} 00000 n ");
    }
    let _ = write!(text, "trailer\n<< /Size {} /Root 1 0 R >>\nstartxref\n{table}\n%%EOF\n", objects.len() + 1);
    text.into_bytes()
}
