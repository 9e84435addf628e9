export async function openPage() { throw new Error('todo'); }
