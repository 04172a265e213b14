-- Decisions: the transition of a leased message. The rules are those of `domain.settlement`; a test proves both equal
-- over generated cases.

function decisions.has_retries(policy, attempt)
    return policy.max_retries == nil or attempt <= policy.max_retries
end

local function backoff_seconds(policy, attempt, random)
    local grown = policy.backoff_base_seconds * policy.backoff_factor ^ min(attempt - 1, 64)
    return min(grown, policy.backoff_max_seconds) + policy.backoff_jitter_seconds * random
end

local function live_again(event, leased, now, delay_seconds, attempt, expires_at)
    if leased.cancelled then
        return { event = event, state = "cancelled" }
    end
    local delay = microseconds(max(0, delay_seconds))
    return {
        event = event,
        state = delay > 0 and "held" or "ready",
        due_at = now + delay,
        attempt = attempt,
        expires_at = expires_at or leased.expires_at,
    }
end

local function decide_nak(leased, policy, now, random, delay_seconds)
    local too_late = policy.delivery == "at_most_once" and leased.deadline_at and leased.deadline_at <= now
    if too_late or not decisions.has_retries(policy, leased.attempt) then
        return { event = "nak", state = "failed" }
    end
    delay_seconds = delay_seconds or backoff_seconds(policy, leased.attempt, random)
    return live_again("nak", leased, now, delay_seconds, leased.attempt)
end

local function decide_lease_end(leased, policy, now)
    if leased.expires_at and leased.expires_at <= now then
        return { event = "expire", state = "expired" }
    end
    if policy.delivery == "at_most_once" then
        if leased.deadline_at and leased.deadline_at <= now then
            return { event = "deadline", state = "expired" }
        end
        return { event = "lease_end", state = "lease_expired" }
    end
    if not decisions.has_retries(policy, leased.attempt) then
        return { event = "lease_end", state = "failed" }
    end
    return live_again("lease_end", leased, now, 0, leased.attempt)
end

function decisions.decide(event, leased, policy, now, random, delay_seconds)
    if event == "ack" then
        return { event = event, state = "succeeded" }
    elseif event == "reject" then
        return { event = event, state = "rejected" }
    elseif event == "nak" then
        return decide_nak(leased, policy, now, random, delay_seconds)
    elseif event == "reschedule" then
        local delay = delay_seconds or 0
        local moved = leased.expires_at and leased.expires_at + microseconds(max(0, delay))
        return live_again(event, leased, now, delay, 0, moved)
    elseif event == "release" then
        return live_again(event, leased, now, 0, leased.attempt - 1)
    end
    return decide_lease_end(leased, policy, now)
end

-- Whether the settlement would end the message.
function decisions.would_end(event, attempt, policy)
    return event == "ack" or event == "reject" or (event == "nak" and not decisions.has_retries(policy, attempt))
end

-- The end of a lease granted now. A later deadline or the expiry ends it early.
function decisions.lease_end(expires_at, deadline_at, now, lease_seconds)
    local ends_at = now + microseconds(lease_seconds)
    if expires_at and now < expires_at and expires_at < ends_at then
        ends_at = expires_at
    end
    if deadline_at and now < deadline_at and deadline_at < ends_at then
        ends_at = deadline_at
    end
    return ends_at
end

-- Whether the token of a lease that was not reclaimed still settles.
function decisions.is_held(expires_at, deadline_at, ends_at, now)
    if ends_at > now then
        return true
    end
    local is_over = expires_at and expires_at <= now
    return ends_at == deadline_at and not is_over
end

function decisions.extended_end(leased, ends_at, now, lease_seconds)
    if ends_at <= now then
        return ends_at
    end
    return max(ends_at, decisions.lease_end(leased.expires_at, leased.deadline_at, now, lease_seconds))
end
