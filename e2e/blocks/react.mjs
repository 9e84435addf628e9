// A front end's hook as it would be written in React, with `useState` and `useRef` as plain values: updaters run at once.

/** Makes the hook's state and its `handleEvent`. */
export function useStreamProcessor() {
  const state = { blocks: [], isStreaming: false };
  const setBlocks = (next) => (state.blocks = typeof next === 'function' ? next(state.blocks) : next);
  const setIsStreaming = (next) => (state.isStreaming = next);
  const inProgress = { current: new Map() };
  const toolUseMap = { current: new Map() };

  const handleEvent = (msg) => {
    switch (msg.type) {
      case 'message_start':
        inProgress.current.clear();
        toolUseMap.current.clear();
        setBlocks([]);
        setIsStreaming(true);
        break;
      case 'content_block_start':
        inProgress.current.set(msg.index, { index: msg.index, ...msg.content_block, _parts: [] });
        break;
      case 'content_block_delta': {
        const block = inProgress.current.get(msg.index);
        if (block) grow(block, msg.delta);
        break;
      }
      case 'content_block_stop': {
        const block = inProgress.current.get(msg.index);
        if (!block) break;
        inProgress.current.delete(msg.index);
        if (block.type === 'tool_result') {
          const idx = toolUseMap.current.get(block.tool_use_id);
          if (idx != null) {
            const result = {
              toolResult: block.content,
              toolResultError: block.status === 'error',
              artifact: block.artifact,
            };
            setBlocks((prev) => prev.map((b, i) => (i === idx ? { ...b, ...result } : b)));
            break;
          }
        }
        setBlocks((prev) => {
          const next = [...prev, block];
          if (block.type === 'tool_use') toolUseMap.current.set(block.id, next.length - 1);
          return next;
        });
        break;
      }
      case 'message_stop':
        setIsStreaming(false);
        break;
    }
  };
  return { state, handleEvent };
}

function grow(block, d) {
  if (d.type === 'text_delta') {
    block._parts.push(d.text ?? '');
    block.text = block._parts.join('');
    if (d.extras?.block_subtype === 'user_stopped') {
      block.type = 'terminal_user_stopped';
    } else if (d.extras?.block_subtype === 'error') {
      block.type = 'terminal_error';
      block.extras = d.extras;
    }
  } else if (d.type === 'thinking_delta') {
    block._parts.push(d.thinking ?? '');
    block.thinking = block._parts.join('');
  }
  if (d.action_requests) {
    block.actionRequests = d.action_requests;
    block.reviewConfigs = d.review_configs;
    block.timeoutSeconds = d.timeout_seconds;
  }
  if (d.status) block.processingStatus = d.status;
  if (d.message) block.processingMessage = d.message;
}
