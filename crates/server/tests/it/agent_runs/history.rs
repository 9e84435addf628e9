//! The history by day.

use super::history_writer::{DAY, HOUR, HistoryWriter};
use super::{end_of, frames_until, say};
use crate::blocks::socket::Socket;
use crate::harness::Server;
use model::Millis;
use reqwest::Method;
use serde_json::{Value, json};

const HISTORY: &str = "/api/v1/agent/history";
/// 2025-03-01T00:00:00Z.
const MARCH: Millis = 20_148 * DAY;

fn day_summary(day: &Value) -> (Value, bool, Vec<String>) {
    let messages = day["snapshot"]["messages"].as_array().unwrap();
    let told =
        messages.iter().map(|said| format!("{} {}", said["role"].as_str().unwrap(), said["content"].as_str().unwrap()));
    (day["snapshot"]["day"].clone(), day["snapshot"]["hasMore"].as_bool().unwrap(), told.collect())
}

async fn past(write: impl AsyncFnOnce(&mut HistoryWriter)) -> Server {
    let mut hw = Server::demo();
    hw.kill9();
    let mut past = HistoryWriter::open(&hw, "thr_past");
    write(&mut past).await;
    past.close().await;
    hw.restart();
    hw
}

fn words(texts: &[(Millis, &str)]) -> Vec<(Millis, String)> {
    texts.iter().map(|(at, text)| (*at, (*text).to_owned())).collect()
}

#[tokio::test]
async fn days_are_those_of_the_callers_time_zone() {
    // 2025-03-30, when Paris goes from UTC+1 to UTC+2: the day begins at 23:00Z and ends at 22:00Z.
    let sunday = MARCH + 29 * DAY;
    let hw = past(async |past: &mut HistoryWriter| {
        past.write_run((sunday - HOUR - 1, "late?"), &words(&[(sunday - HOUR, "Early.")])).await;
        past.write_run((sunday + 21 * HOUR, "evening?"), &words(&[(sunday + 22 * HOUR, "Night.")])).await;
    })
    .await;
    let day = async |query: &str| hw.get(&format!("{HISTORY}?threadId=thr_past&tz=Europe/Paris{query}")).await.json();
    assert_eq!(day_summary(&day("").await), (json!("2025-03-31"), true, vec!["assistant Night.".to_owned()]));
    let expected = vec!["assistant Early.".to_owned(), "user evening?".to_owned()];
    assert_eq!(day_summary(&day("&before=2025-03-31").await), (json!("2025-03-30"), true, expected));
    let expected = vec!["user late?".to_owned()];
    assert_eq!(day_summary(&day("&before=2025-03-30").await), (json!("2025-03-29"), false, expected));
    for zone in ["", "Paris", "%2B01:00", "Europe/Nowhere"] {
        let reply = hw.get(&format!("{HISTORY}?threadId=thr_past&tz={zone}")).await;
        assert_eq!(reply.problem(), (422, "invalid_query".to_owned()), "{zone}");
    }
}

#[tokio::test]
async fn a_thread_is_found_by_the_name_of_any_protocol() {
    let hw = Server::demo();
    let mut socket = Socket::connect(&hw).await;
    socket.send_json(&json!({"type": "chat", "session_id": "kitchen", "content": "story 1 fast"})).await;
    socket.read_until("message_stop").await;
    let run = hw.post("/api/v1/agent/runs", json!({"threadId": "garden", "message": "story 1 fast"})).await;
    assert_eq!(run.status, 202, "{}", run.text);
    let conversation = hw.post("/v1/conversations", json!({})).await.json();
    let conversation = conversation["id"].as_str().unwrap();
    let response = json!({"model": "demo", "input": "story 1 fast", "conversation": conversation});
    assert_eq!(hw.post("/v1/responses", response).await.status, 200);
    let mut found = Vec::new();
    for name in ["kitchen", "garden", conversation] {
        let list = hw.get(&format!("/v1/threads?name={name}")).await.json();
        let [thread] = &list["data"].as_array().unwrap()[..] else { panic!("{name}: {list}") };
        let id = thread["thread_id"].as_str().unwrap().to_owned();
        let history = hw.get(&format!("{HISTORY}?threadId={name}")).await.json();
        let by_id = hw.get(&format!("{HISTORY}?threadId={id}")).await.json();
        assert_eq!(history["snapshot"]["messages"], by_id["snapshot"]["messages"], "{name}");
        assert_ne!(history["snapshot"]["messages"], json!([]), "{name}");
        assert_eq!(hw.get(&format!("/v1/threads?name={id}")).await.json(), list);
        found.push(id);
    }
    found.sort();
    found.dedup();
    assert_eq!(found.len(), 3, "three threads");
    // A name that two protocols use finds both, and each protocol keeps its own.
    hw.post("/api/v1/agent/runs", json!({"threadId": "kitchen", "message": "story 1 fast"})).await;
    assert_eq!(hw.get("/v1/threads?name=kitchen").await.json()["data"].as_array().unwrap().len(), 2);
    assert_eq!(hw.get("/v1/threads?name=attic").await.json()["data"], json!([]));
    assert_eq!(hw.get(&format!("{HISTORY}?threadId=attic")).await.problem(), (404, "not_found".to_owned()));
    assert_eq!(hw.get("/v1/threads?name=kitchen&limit=1").await.problem(), (422, "invalid_query".to_owned()));
}

#[tokio::test]
async fn three_days_are_paged_from_the_newest_to_the_oldest() {
    let hw = past(async |past: &mut HistoryWriter| {
        past.write_run((MARCH + HOUR, "one?"), &words(&[(MARCH + HOUR, "One.")])).await;
        // The request is before midnight, the answer at midnight and after it.
        let night = MARCH + DAY;
        past.write_run((night - 1, "two?"), &words(&[(night - 1, "Well."), (night, "Two."), (night + HOUR, "Two!")]))
            .await;
        past.write_run((MARCH + 4 * DAY, "three?"), &words(&[(MARCH + 4 * DAY + 1, "Three.")])).await;
        past.write_run((MARCH + 5 * DAY - 2, "four?"), &words(&[(MARCH + 5 * DAY - 1, "Four.")])).await;
    })
    .await;
    let day = async |query: &str| hw.get(&format!("{HISTORY}?threadId=thr_past{query}")).await.json();
    let newest = day("").await;
    let expected = ["user three?", "assistant Three.", "user four?", "assistant Four."].map(str::to_owned).to_vec();
    assert_eq!(day_summary(&newest), (json!("2025-03-05"), true, expected));
    assert_eq!((&newest["type"], &newest["threadId"]), (&json!("STATE_SNAPSHOT"), &json!("thr_past")));
    let snapshot = &newest["snapshot"];
    assert_eq!((&snapshot["scope"], &snapshot["threadId"]), (&json!("history_day"), &json!("thr_past")));
    let middle = day("&before=2025-03-05").await;
    assert_eq!(
        day_summary(&middle),
        (json!("2025-03-02"), true, vec!["assistant Two.".to_owned(), "assistant Two!".to_owned()])
    );
    assert_eq!(middle["snapshot"]["messages"][0]["timestamp"], "2025-03-02T00:00:00.000Z");
    assert_eq!(
        day_summary(&day("&before=2025-03-03").await),
        day_summary(&middle),
        "days without a word are passed over"
    );
    let oldest = ["user one?", "assistant One.", "user two?", "assistant Well."].map(str::to_owned).to_vec();
    assert_eq!(day_summary(&day("&before=2025-03-02").await), (json!("2025-03-01"), false, oldest));
    assert_eq!(day_summary(&day("&before=2025-03-01").await), (Value::Null, false, Vec::new()));
    // The thread of the newest run is the one without a name.
    assert_eq!(hw.get(HISTORY).await.json(), newest);
    assert_eq!(hw.get(&format!("{HISTORY}?before=2025-03-05")).await.json(), middle);
    // A message's id is a page cursor: what follows it comes next.
    let seq = middle["snapshot"]["messages"][1]["seq"].as_u64().unwrap();
    let rest = frames_until(&hw, "thr_past", &seq.to_string(), "Three.").await;
    let kinds: Vec<&str> = rest.iter().take(2).map(|frame| frame.event.as_str()).collect();
    assert_eq!(kinds, ["RUN_FINISHED", "RUN_STARTED"]);
}

#[tokio::test]
async fn days_at_the_ends_of_months_and_years_follow_each_other() {
    // 2023-12-31, 2024-01-01, 2024-02-28, 2024-02-29, 2024-03-01, 2100-02-28, 2100-03-01.
    let days = [19_722, 19_723, 19_781, 19_782, 19_783, 47_540, 47_541].map(|day| day * DAY);
    let hw = past(async |past: &mut HistoryWriter| {
        for day in days {
            // The first and the last millisecond of each.
            past.write_run((day, "early?"), &words(&[(day + DAY - 1, "Late.")])).await;
        }
    })
    .await;
    let mut query = String::new();
    for (index, written) in
        ["2100-03-01", "2100-02-28", "2024-03-01", "2024-02-29", "2024-02-28", "2024-01-01", "2023-12-31"]
            .into_iter()
            .enumerate()
    {
        let day = hw.get(&format!("{HISTORY}?threadId=thr_past{query}")).await.json();
        let said = vec!["user early?".to_owned(), "assistant Late.".to_owned()];
        assert_eq!(day_summary(&day), (json!(written), index < 6, said), "{query}");
        let times: Vec<&str> =
            (0..2).map(|at| day["snapshot"]["messages"][at]["timestamp"].as_str().unwrap()).collect();
        assert_eq!(times, [format!("{written}T00:00:00.000Z"), format!("{written}T23:59:59.999Z")]);
        query = format!("&before={written}");
    }
    let far = |day: &str| format!("{HISTORY}?threadId=thr_past&before={day}");
    assert_eq!(day_summary(&hw.get(&far("9999-12-31")).await.json()).0, "2100-03-01", "a day to come");
    assert_eq!(day_summary(&hw.get(&far("1970-01-01")).await.json()), (Value::Null, false, Vec::new()));
    for no_day in ["2023-02-29", "2100-02-29", "2024-04-31", "1969-12-31", "2024-1-1", "2024-01-01T00:00:00Z", ""] {
        assert_eq!(hw.get(&far(no_day)).await.problem(), (422, "invalid_query".to_owned()), "{no_day}");
    }
}

#[tokio::test]
async fn a_queued_run_does_not_change_the_title_of_its_thread() {
    let hw = Server::demo();
    let (_, first) = say(&hw, json!({"message": "story 3000", "threadId": "mine"})).await;
    frames_until(&hw, "mine", "", "TEXT_MESSAGE_CONTENT").await;
    say(&hw, json!({"message": "story 1 fast", "threadId": "mine"})).await;
    let latest = hw.get(HISTORY).await.json();
    assert_eq!((&latest["threadId"], &latest["snapshot"]["threadId"]), (&json!("mine"), &json!("mine")));
    assert_eq!(day_summary(&latest).2, ["user story 3000"], "what is queued was not said yet");
    assert_eq!(latest["snapshot"]["messages"][0]["metadata"]["runId"], first);
}

#[tokio::test]
async fn hidden_runs_are_not_shown() {
    let hw = past(async |past: &mut HistoryWriter| {
        let first = past.write_run((MARCH, "a?"), &words(&[(MARCH, "A.")])).await;
        let second = past.write_run((MARCH + DAY, "b?"), &words(&[(MARCH + DAY, "B.")])).await;
        past.hide_run(MARCH + DAY, &second).await;
        past.write_run((MARCH + 2 * DAY, "c?"), &words(&[(MARCH + 2 * DAY, "C.")])).await;
        let last = past.write_run((MARCH + 3 * DAY, "d?"), &words(&[(MARCH + 3 * DAY, "D.")])).await;
        past.hide_run(MARCH + 3 * DAY, &last).await;
        past.hide_run(MARCH + 3 * DAY, &first).await;
    })
    .await;
    let day = async |query: &str| day_summary(&hw.get(&format!("{HISTORY}?threadId=thr_past{query}")).await.json());
    let c = || (json!("2025-03-03"), false, vec!["user c?".to_owned(), "assistant C.".to_owned()]);
    assert_eq!(day("").await, c());
    assert_eq!(day("&before=2025-03-04").await, c(), "also when what hid it is of a later day");
    assert_eq!(day("&before=2025-03-03").await, (Value::Null, false, Vec::new()));
}

#[tokio::test]
async fn ten_thousand_messages_are_read_in_bounded_memory() {
    const DAYS: u64 = 100;
    const ANSWERS: u64 = 99;
    let text = |day: u64, n: u64| format!("{day}/{n} {}", "x".repeat(4_000));
    let hw = past(async |past: &mut HistoryWriter| {
        for day in 0..DAYS {
            let at = MARCH + day * DAY;
            let answers: Vec<(Millis, String)> = (0..ANSWERS).map(|n| (at + n, text(day, n))).collect();
            past.write_run((at, "go on"), &answers).await;
        }
    })
    .await;
    // Reads before measuring, so that what each thread of the server allocates once does not count.
    for _ in 0..8 {
        hw.get(&format!("{HISTORY}?threadId=thr_past")).await;
    }
    forget_peak(&hw);
    let before = peak(&hw);
    let (mut query, mut seen, mut days) = (String::new(), 0, 0);
    loop {
        let page = hw.get(&format!("{HISTORY}?threadId=thr_past{query}")).await.json();
        let snapshot = &page["snapshot"];
        let messages = snapshot["messages"].as_array().unwrap();
        assert_eq!(messages.last().unwrap()["content"], text(DAYS - 1 - days, ANSWERS - 1));
        seen += messages.len() as u64;
        days += 1;
        assert_eq!(snapshot["hasMore"], days < DAYS);
        if days == DAYS {
            break;
        }
        query = format!("&before={}", snapshot["day"].as_str().unwrap());
    }
    assert_eq!(seen, DAYS * (ANSWERS + 1));
    // All messages in memory would be about eighty megabytes; each thread that answers keeps a megabyte or two.
    let grown = peak(&hw) - before;
    assert!(grown < 24 * 1024, "{grown} KiB more than for one day");
}

/// Resets the peak: starting may have needed more memory than reading.
fn forget_peak(hw: &Server) {
    std::fs::write(format!("/proc/{}/clear_refs", hw.pid()), "5").unwrap();
}

/// The server's peak memory, in KiB.
fn peak(hw: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", hw.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[tokio::test]
async fn the_messages_of_a_day_have_text_calls_and_attachments() {
    let hw = Server::demo();
    let kind = [("content-type", "application/pdf")];
    let sent = hw.request(Method::POST, "/api/v1/agent/attachments?name=a.pdf", &kind, Some(b"%PDF-".to_vec())).await;
    let file = sent.json();
    let files = json!([{"bucket": file["bucket"], "path": file["path"]}]);
    let body = json!({"message": "weather", "threadId": "mine", "attachments": files, "metadata": {"page": 3}});
    let (_, run) = say(&hw, body).await;
    let frames = frames_until(&hw, "mine", "", &end_of(&run, "RUN_FINISHED")).await;
    let answer = hw.get(&format!("{HISTORY}?threadId=mine")).await.json();
    assert_eq!(hw.get(HISTORY).await.json(), answer, "shown by the name that the client gave");
    assert_eq!((&answer["threadId"], &answer["snapshot"]["hasMore"]), (&json!("mine"), &json!(false)));
    let messages = answer["snapshot"]["messages"].as_array().unwrap();
    let roles: Vec<&str> = messages.iter().map(|said| said["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "tool", "assistant"]);
    let metadata = &messages[0]["metadata"];
    assert_eq!((&metadata["page"], &metadata["runId"]), (&json!(3), &json!(run)));
    let named = json!([{"bucket": file["bucket"], "path": file["path"], "name": "a.pdf", "size": 5}]);
    assert_eq!(metadata["attachments"], named);
    assert_eq!(messages[0]["content"], "weather");
    for (said, kind, output) in
        [(&messages[1], "TOOL_CALL_RESULT", "toolAgentOutput"), (&messages[2], "TEXT_MESSAGE_END", "workerAgentOutput")]
    {
        let frame = frames.iter().find(|frame| frame.event == kind).unwrap();
        assert_eq!((&said["id"], &said["metadata"][output]), (&frame.data["messageId"], &frame.data[output]));
        let seq: u64 = frame.id.split('-').nth(1).unwrap().parse().unwrap();
        assert_eq!(said["seq"], seq, "the record that finished it");
    }
    let day = answer["snapshot"]["day"].as_str().unwrap();
    for said in messages {
        assert!(said["timestamp"].as_str().unwrap().starts_with(day), "{said}");
    }
}
