// A page with the AI SDK's `useChat`: what it has comes from the server, and what goes on there is resumed.

import { useChat } from '@ai-sdk/react';
import { DefaultChatTransport, lastAssistantMessageIsCompleteWithApprovalResponses, lastAssistantMessageIsCompleteWithToolCalls } from 'ai';
import { useState } from 'react';
import { createRoot } from 'react-dom/client';

// `server` is another origin than that of the page, and `key` the user's.
const { id, ui, agent = 'demo', server = '', key } = Object.fromEntries(new URL(location.href).searchParams);
const headers = key ? { Authorization: `Bearer ${key}` } : {};
const pick = { name: 'pick', description: 'Picks a colour.', parameters: { type: 'object', properties: {} } };
const transport = new DefaultChatTransport({ api: `${server}/api/chat?ui=${ui}`, headers, body: { agent, tools: [pick] } });

function Part({ part, onDecide }) {
  if (part.type === 'text') return <p className="text">{part.text}</p>;
  if (part.state !== 'approval-requested') return part.toolCallId ? <p className="call">{part.toolName} {part.state}</p> : null;
  return (
    <div className="approval">
      {part.toolName}
      <button className="approve" onClick={() => onDecide({ id: part.approval.id, approved: true })}>Approve</button>
      <button className="reject" onClick={() => onDecide({ id: part.approval.id, approved: false, reason: 'not today' })}>Reject</button>
    </div>
  );
}

function Chat({ initial }) {
  const [words, setWords] = useState('');
  const { messages, status, error, sendMessage, regenerate, addToolApprovalResponse, addToolOutput } = useChat({
    id,
    messages: initial,
    resume: true,
    transport,
    sendAutomaticallyWhen: (options) =>
      lastAssistantMessageIsCompleteWithApprovalResponses(options) || lastAssistantMessageIsCompleteWithToolCalls(options),
    onToolCall: ({ toolCall: { toolName, toolCallId } }) => {
      if (toolName === 'pick') void addToolOutput({ tool: 'pick', toolCallId, output: 'red' });
    },
  });
  const send = (event) => {
    event.preventDefault();
    sendMessage({ text: words });
    setWords('');
  };
  return (
    <main data-status={status}>
      {messages.map((message) => (
        <section key={message.id} className={message.role} data-id={message.id}>
          {message.parts.map((part, at) => <Part key={at} part={part} onDecide={addToolApprovalResponse} />)}
        </section>
      ))}
      {error && <p className="error">{error.message}</p>}
      <form onSubmit={send}><input value={words} onChange={(event) => setWords(event.target.value)} /></form>
      <button id="stop" onClick={() => fetch(`${server}/api/chat/${id}/stop`, { method: 'POST', headers: { ...headers, 'content-type': 'application/json' }, body: '{}' })}>Stop</button>
      <button id="regenerate" onClick={() => regenerate()}>Again</button>
    </main>
  );
}

const history = await fetch(`${server}/api/chat/${id}/messages?ui=${ui}`, { headers });
const initial = history.ok ? (await history.json()).messages : [];
createRoot(document.getElementById('root')).render(<Chat initial={initial} />);
