-- Health of a Tidemill Module or Topology from its conditions: Ready always, Reconciling and Stalled only while true.
local conditions = {}
local status = obj.status or {}
for _, condition in ipairs(status.conditions or {}) do
  conditions[condition.type] = condition
end

local function health(word, condition, otherwise)
  local text = otherwise
  if condition ~= nil then
    text = condition.reason
    if condition.message ~= nil and condition.message ~= "" then
      text = text .. ": " .. condition.message
    end
  end
  return { status = word, message = text }
end

local function is_true(condition)
  return condition ~= nil and condition.status == "True"
end

if obj.metadata.deletionTimestamp ~= nil then
  return health("Progressing", nil, "It is being deleted.")
end
-- What is said about an older spec says nothing about this one.
if status.observedGeneration == nil or status.observedGeneration ~= obj.metadata.generation then
  return health("Progressing", nil, "The operator has not seen this change yet.")
end
if is_true(conditions.Stalled) then
  return health("Degraded", conditions.Stalled)
end
if is_true(conditions.Reconciling) then
  return health("Progressing", conditions.Reconciling)
end
if is_true(conditions.Ready) then
  if conditions.Ready.reason == "Paused" then
    return health("Suspended", conditions.Ready)
  end
  return health("Healthy", conditions.Ready)
end
return health("Progressing", conditions.Ready, "The operator has not said how it is.")
